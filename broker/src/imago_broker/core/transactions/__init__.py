"""Transactions of both protocols as values: what is open, how each may end."""
