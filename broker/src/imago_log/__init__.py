"""The log store: one commit log and the views derived from it."""
