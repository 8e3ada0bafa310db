"""Replication with original MetaQ brokers, by their own protocols."""
