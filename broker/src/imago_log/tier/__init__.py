"""What of the log is in a bucket, and reading it as if it were here.

Whole files of the log, as they are, each with an index of its queues' units (`index`); a manifest
names them (`manifest`). `reader` reads them through blocks that somebody else fetches: what is not
here yet is noted as wanted, and the reader comes again.
"""
