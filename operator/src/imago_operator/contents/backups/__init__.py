"""Backups as resources: taken once, or by a schedule that also ends old ones."""
