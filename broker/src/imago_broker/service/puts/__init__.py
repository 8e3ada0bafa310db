"""Putting messages: one append a loop turn, its acknowledgements, and what hangs on a put."""
