"""Replay: a slice of a table becomes messages of a topic again, each once."""
