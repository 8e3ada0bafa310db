"""Keys and certificates: made in memory, written into Secrets."""
