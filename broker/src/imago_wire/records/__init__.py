"""Records written and read: hot modules in plain Python and compiled, and who serves."""
