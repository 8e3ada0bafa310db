"""MetaQ's own files, byte for byte as Metamorphosis 1.4 wrote them, for topics that are read so.

Readers of MetaQ ask by byte position and are sent files as they lie. They follow the queue's units,
not the log, so nothing has to be remembered of how far they are: where the files of a partition
end is where writing goes on (`materialiser`). They hold only what is visible, since what followers
have not got may be cut off, and a file that was sent cannot be called back.

Files have no holes. Where records are lost, or the log lacks what lies between, a partition lets
its files go and begins behind the gap; a reader of old positions is answered from the log, or told
where it begins. A small file `origin` says of which life of the topic they are (`metaq_segments`).
"""
