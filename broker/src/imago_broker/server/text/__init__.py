"""Connections of MetaQ's text protocol."""
