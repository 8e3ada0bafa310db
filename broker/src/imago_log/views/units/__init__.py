"""The units of consume queues: in files, found, proved, lost.

A unit says where in the log the message of one queue offset is. Offsets have no gaps, so a unit's
place in its file is its offset, and where a queue ends can be found in its files alone: what is not
written yet is zero, and no unit has a size of zero.

Files may lie after a crash: their last units may be noise. A queue is believed to end where its
newest unit names a record of the log that names this queue offset (`unit_proof`). Where the log has
lost records, lost units stand for them, so that the offsets behind stay what they were (`lost`);
readers pass them over. A unit in a file is also what confirms a border of records behind damage,
since no client can write one (`witness`).
"""
