"""Stores on file systems in memory and on disk, and what damages them."""
