"""Pulls, also those that wait, and queries by key and id."""
