"""The dashboard: a page, its scripts and its style, and what serves them."""
