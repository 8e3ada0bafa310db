"""Reading partitions: where, how much, in which order messages are handled."""
