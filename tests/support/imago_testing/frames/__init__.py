"""Frames, records and the strategies that generate them, and both twins of the hot modules."""
