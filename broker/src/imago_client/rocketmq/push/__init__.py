"""Push consumers: one member of a group that shares a topic's queues."""
