"""Brokers of one or several shards inside the process of the test."""
