"""A member of a shard: leading, following, cutting, copying.

A follower's log has its leader's bytes at its leader's offsets, so replication copies bytes and
knows no messages. What follows from them (units, keys, metadata, producers) is made here again by
the same code that makes it at a start, and is the same on all members.

Two logs that hold bytes of one epoch are equal up to the end of the shorter one, since one leader
writes an epoch and never cuts it. So a follower asks where its last epoch ended at its leader, cuts
itself to that offset, and copies from there. Who may lead and what may be cut is decided in
`imago_broker.core.shard`; here it is carried out so that a crash at any moment leaves the old end,
the new one or a border between them.
"""
