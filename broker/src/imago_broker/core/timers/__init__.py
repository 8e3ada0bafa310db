"""Timers as plain numbers, and what is written down of those that fired."""
