"""Clients and connections that say exactly what a test tells them to."""
