"""Settings of a topic as values: declared, placed, sealed, static, the broker's own."""
