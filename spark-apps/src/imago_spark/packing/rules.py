"""What both ways of packing rows hold to: where one goes, and what it counts for in a request."""

from __future__ import annotations

from typing import Final

from imago_wire.record_format.properties import is_reserved

ROUND: Final = 100
"""Rows without a key that go to one queue before it is the next one's turn."""
COST: Final = 300
"""Bytes around a body in a request, roughly: properties and numbers."""


def is_own(name: str) -> bool:
    """Whether a property is the sender's own: the system uses others of a message that was read."""
    return not is_reserved(name) and not name.startswith("__")
