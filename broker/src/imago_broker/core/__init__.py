"""Decisions of the broker: pure values and rules, no clock, loop or socket."""
