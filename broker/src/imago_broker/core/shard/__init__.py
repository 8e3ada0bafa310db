"""Who leads a shard and what its members hold: decisions over values."""
