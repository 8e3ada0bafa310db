"""Counters of traffic and use, and their history."""
