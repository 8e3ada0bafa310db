"""Requests of tools about users and rules, of both kinds of access control."""
