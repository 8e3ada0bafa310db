"""Report: one page that says how a table's topics are doing."""
