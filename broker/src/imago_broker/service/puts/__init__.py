"""Putting messages: one append a loop turn, its acknowledgements, and what hangs on a put.

Everything that arrives in one turn of the event loop is appended by one call at its end, so the
cost of a system call and of a sync is shared by all connections, and nobody waits for a timer.

An append is one of four things to a put: written, synced here, written by all members in sync, or
synced by all of them. Each has an offset that only grows, so the puts that wait for a level are a
queue, and one step forward answers a run of them (`acknowledgements`, `core.puts`). Readers may see
a message before its sender has an answer, and never one that could still be cut.

What must be put once (a producer's numbers) or elsewhere too (references of light queues) is
settled before the append, within the same turn: all of it is in the log, or none (`sequencing`,
`light_puts`).
"""
