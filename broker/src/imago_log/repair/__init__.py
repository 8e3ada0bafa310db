"""Finding and repairing damage while the store runs.

A reader that fails knows only that no record is where a unit says. Either the unit is wrong, and
the log has the right place: the unit is put right. Or the log is damaged: the range goes out of
service, and its file and bytes are named. Which of both it is takes reads of the log, so the worker
finds it out; until then readers are told to come again, and nothing is passed over (`inspecting`).

Bytes for a damaged range come from another member or a backup. They are believed only where they
are whole records of just these places that take no other record's queue offset (`healing`).
Then the views get back what they lacked (`restoring`).
"""
