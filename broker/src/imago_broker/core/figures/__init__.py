"""Rates, use and latencies from counters that only grow."""
