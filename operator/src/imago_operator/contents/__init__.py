"""What is in a cluster: topics, consumer groups, and moves of topics between shards."""
