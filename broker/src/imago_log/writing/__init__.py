"""Appending: messages, and changes of metadata."""
