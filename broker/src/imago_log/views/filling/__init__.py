"""Queues filled from records that others wrote."""
