"""Builders, fakes and processes that several test folders share."""
