"""How much a search tries: all of it, or the tenth that `make test` has time for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

IS_SHORT: Final = os.environ.get("IMAGO_EXAMPLES") == "few"
SHARE: Final = 10
LEAST: Final = 5


def examples(count: int) -> int:
    """Return how many examples, seeds or worlds are tried where `count` are when time is no matter.

    With IMAGO_EXAMPLES=few a tenth, at least five: the first ones, so that no run tries others.
    """
    return max(count // SHARE, min(count, LEAST)) if IS_SHORT else count


def seldom(values: Iterable[Any], often: int = 1) -> list[Any]:
    """Return a test's parameters, of which `make test` tries the first `often`, not all."""
    return [
        value if number < often else pytest.param(value, marks=pytest.mark.full)
        for number, value in enumerate(values)
    ]
