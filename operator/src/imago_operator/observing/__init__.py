"""One observation of everything that belongs to a cluster."""
