"""Aggregate: rows of a table of parse become figures a window and key."""
