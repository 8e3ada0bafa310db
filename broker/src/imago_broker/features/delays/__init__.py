"""Delayed messages as clients see them; `service/delays` puts them where they belong in time."""
