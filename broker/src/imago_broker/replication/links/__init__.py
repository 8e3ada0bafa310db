"""Connections between members: sockets, TLS, who may connect."""
