"""The shape of an entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NOTHING: Final = "Nothing."
BY_ITSELF: Final = "Nothing: it passes by itself."


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of one condition."""

    kind: str
    """Kind of resource that has it."""
    type: str
    reason: str
    means: str
    cure: str = NOTHING


@dataclass(frozen=True, slots=True)
class Happening:
    """An event that is no change of a condition."""

    kind: str
    reason: str
    means: str
