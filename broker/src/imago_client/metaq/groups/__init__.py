"""Balanced groups and producers that find brokers in MetaQ's tree."""
