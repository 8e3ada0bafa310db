"""The side that follows: the copy that grows."""
