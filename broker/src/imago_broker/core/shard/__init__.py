"""Who leads a shard, and what its members hold: the protocol of a replicated log, over values.

A shard is a log that several members keep. One of them leads: it alone appends, and the others
copy its bytes. The coordinator holds one small state (`model.shard.ShardState`): the leader, its
epoch, and the in-sync set. It changes only by compare-and-set, so its versions form one line of
history, and every question of who may do what is answered by that line and never by a timer.

*Epochs.* Each leadership has a number of its own, one above the last. Members note an epoch on
disk before they act in it and take nothing of a lower one, so a leader that was deposed without
knowing it reaches nobody. The log knows where each epoch begins. Since one leader writes an epoch
and never cuts what it wrote, two logs that hold bytes of the same epoch are equal up to the end
of the shorter part: that is all that reconciliation uses (`reconcile`).

*In-sync set.* A record is committed when the leader and every member of the set have written it;
the high watermark says up to where. The leader waits for the stored set and for the one that it
has proposed, so it never waits for fewer members than the coordinator knows (`in_sync`,
`watermark`). Hence every member of the stored set holds every committed record, and any of them
may lead next, which is why no majority is needed. After an election the watermark stands still
until all of the set have spoken in the new epoch.

*Losing memory.* A member that lost power may have lost what it acknowledged. The set therefore
names lives, not only members: a later life that lost its page cache is not believed until it has
caught up. When all of the set have lost power, the highest log decides, once everybody is back
whose log may count; among them are the members that left the set when it became too small for
replicated acknowledgements (`election`).

*Lease.* Epochs protect the log; clients carry none. So a leader answers them only while the
coordinator cannot have ended its session (`lease`).

Events change facts; the role of a member and what the facts say about leadership choose an
action from a table (`machine`). Effects are returned, not carried out. No clock, file, socket or
thread is known here. Durability is a contract with the shell: effects are carried out in order,
those marked *disk* are durable before the next; in the store, the start of an epoch is durable
before any of its bytes, and a truncation of the log before the epochs that it removes.
"""
