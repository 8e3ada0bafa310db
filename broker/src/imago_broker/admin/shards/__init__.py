"""Shards among each other: who leads, drains, what all of them are to have."""
