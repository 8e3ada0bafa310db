"""Micro-batches of sinks: staged where nobody reads, then published as a whole."""
