"""What a query reads: which topics, from when to when."""
