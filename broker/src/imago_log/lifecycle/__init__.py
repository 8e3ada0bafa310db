"""Opening, housekeeping, closing."""
