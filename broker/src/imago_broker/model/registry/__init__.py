"""What the registry says of a cluster and its shards, as values."""
