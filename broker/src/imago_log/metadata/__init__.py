"""Topics, groups, offsets and producers: state that lives in the log.

A change is a record like any other, so it is ordered with the messages, copied with them and cut
with them. In memory is the state at the log's end. A snapshot on the device names the log offset
that it is of, and a start adds what the log says behind that. Nothing is in the snapshot alone:
before the oldest file of the log goes, the whole state is written to the log again.

Tables are copied and values never changed in place, so that an image of one moment can be written
by another thread while changes go on (`image`). A cut needs the state of an earlier offset: that is
the last snapshot, or nothing, and the changes that the log has up to there.
"""
