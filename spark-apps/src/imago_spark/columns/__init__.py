"""Records as Arrow columns: no Python object a row."""
