"""The log itself: its files, what was appended last, epochs, damage, the checkpoint.

A record's place in the log is its name: everything else refers to it by that offset, so bytes that
were acknowledged are never moved. One thread appends; another syncs and never writes. Hence three
ends, each at or below the one before: `end` (written, gone with the power), `durable_end` (synced)
and the high watermark (also on the other members; what readers see).

Where the chain of records is broken, what follows is found by looking, and a body may hold what
looks like a record. So a border found so counts only if a witness says so that no client can write
(`borders`, `views.units.witness`). What cannot be read becomes a damaged range (`damage`): a part
of the log that is out of service, never an end of it.

The checkpoint says up to where all else is good. It promises, and is therefore lowered before what
it promises goes, and raised only after what it promises is on the device.
"""
