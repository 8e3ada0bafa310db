"""Shards that get more members, or fewer, while they serve."""
