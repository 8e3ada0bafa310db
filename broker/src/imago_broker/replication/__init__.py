"""Keeping one log on all members of a shard: sockets and disk around `core.shard`'s decisions."""
