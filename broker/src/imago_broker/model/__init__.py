"""What the broker speaks of, as values."""
