"""Keeping one log on all members of a shard: sockets and disk around `core.shard`'s decisions.

What happens outside (the registry, connections, the log, time) becomes an event of the state
machine. The effects that it returns are carried out in their order, each finished, on disk where it
says so, before the next: the proof of the protocol is about just that order (`shell`,
`effect_executor`). Nothing here decides who leads or what is committed.

Bytes do not go through the machine: a follower asks from an offset on, the leader pushes what each
turn appended, and one ACK a turn says how far the follower has come. Both sides limit what they
wait for. An effect that fails ends the process, and is noted: one that fails at every start makes
the member stay away instead of being started again for ever (`failures`).
"""
