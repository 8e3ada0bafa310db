"""Finding out what is wrong, and putting it right while the store runs."""
