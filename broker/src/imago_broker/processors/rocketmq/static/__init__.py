"""Requests about static topics, with their queues' own numbers."""
