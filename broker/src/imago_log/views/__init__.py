"""What is derived from the log: consume queues, key index, MetaQ's own files."""
