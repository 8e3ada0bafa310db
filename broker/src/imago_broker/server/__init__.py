"""Listeners and sessions: the only place where bytes meet sockets."""
