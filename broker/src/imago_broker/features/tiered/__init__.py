"""Old files of the log in a bucket: taken there by the master, read from there, deleted there.

`bucket` is what stands there and who may change it; `archiving` takes files there and deletes
them; `blocks` has what was read from there on the disk; `tier` begins and ends all of it with the
mastership.
"""
