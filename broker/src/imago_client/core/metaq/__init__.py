"""What MetaQ's clients decide: shares of partitions, routes, order, retries. No I/O."""
