"""The log itself: its files, what was appended last, epochs, damage, the checkpoint."""
