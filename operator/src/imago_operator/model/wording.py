"""How numbers of things are written in statuses, events and plans."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Return a number of things, as `1 topic` and `2 topics`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
