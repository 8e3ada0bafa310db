"""Finding and repairing damage while the store runs."""
