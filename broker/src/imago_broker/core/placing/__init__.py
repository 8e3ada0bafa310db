"""On which shards topics have their queues, and who reads which."""
