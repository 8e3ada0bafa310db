"""Desired and actual state as plain values, and the words for both."""
