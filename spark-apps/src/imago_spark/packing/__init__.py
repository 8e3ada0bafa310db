"""Rows to entries of batch requests, in one compiled pass; what is not plain is left to care."""
