"""The protocol between the members of a shard."""
