"""Topics into a table without rows in Spark: its tasks get ranges of queues and return files."""
