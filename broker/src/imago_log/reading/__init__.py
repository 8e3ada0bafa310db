"""Reads by queue offset, MetaQ position, log offset, time and key."""
