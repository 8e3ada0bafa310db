"""Calls of consumers: messages received, acknowledged, and kept out for who works on them."""
