"""Frames by the buffer: a read into requests, answers into bytes; plain and compiled."""
