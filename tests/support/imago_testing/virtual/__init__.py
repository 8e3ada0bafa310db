"""Clocks, networks and event loops that a test moves by hand."""
