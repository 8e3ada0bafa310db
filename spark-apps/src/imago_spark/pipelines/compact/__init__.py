"""Compact: small files of a table become larger ones, and old days go."""
