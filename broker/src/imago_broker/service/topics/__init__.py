"""The topics of this shard, and what the put path needs of each."""
