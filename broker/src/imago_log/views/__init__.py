"""What is derived from the log: consume queues, key index, MetaQ's own files.

A view holds nothing that the log does not say. So no view is synced before it is told that an
append is done, none has a journal, and a wrong one is put right from the log, or thrown away and
made again at the next start (`dispatcher`). Each says up to which log offset it is whole; the
checkpoint has the least of those that are on the device, and a start reads the log from there on.

The log's end moves first and the views follow, in memory at once and in files some time later. A
cut goes the other way: the views first, then the log (`replica.realigning`). In between a view may
lack what the log has, and never has what the log lacks. `view` is what all of them can do.
"""
