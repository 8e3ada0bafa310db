"""Transactions as producers and tools see them; `service/transactions` keeps what is open."""
