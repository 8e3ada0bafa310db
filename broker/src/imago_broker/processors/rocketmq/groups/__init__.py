"""Members of consumer groups: heart beats, offsets, resets, what is passed on between them."""
