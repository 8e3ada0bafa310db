"""Command lines: what commands declare, how lines are read, pages of help, completion of shells."""
