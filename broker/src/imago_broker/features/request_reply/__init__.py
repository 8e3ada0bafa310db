"""Answers that a consumer sends to the client which waits for them."""
