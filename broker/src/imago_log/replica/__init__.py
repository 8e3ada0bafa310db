"""A member of a shard: leading, following, cutting, copying."""
