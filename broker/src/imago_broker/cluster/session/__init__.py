"""The session with ZooKeeper: how it is had, how long it surely lasts, who may touch our nodes.

A leader may answer only while no other can lead. Others may once its session has ended, and that is
no earlier than its time-out after ZooKeeper heard of it last. A cut connection is noticed late, so
nothing is counted from there: the lease runs from when the last call was *sent* that has been
answered since (`session_lease`). What it is computed from is the granted time-out, which each
server may set otherwise and kazoo does not tell: all servers are asked first (`granting`).

kazoo's threads keep a session alive while the event loop hangs, and others would wait for ever for
a broker that serves nobody. So a thread watches the loop: one that is late loses its lease, one
that is dead its session (`watchdog`).
"""
