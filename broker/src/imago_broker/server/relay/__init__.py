"""A client's connection whose requests the new master of the shard answers."""
