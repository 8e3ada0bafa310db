"""How much a search tries: all of it, or the tenth that `make test` has time for."""

from __future__ import annotations

import os
from typing import Final

IS_SHORT: Final = os.environ.get("IMAGO_EXAMPLES") == "few"
SHARE: Final = 10
LEAST: Final = 10


def examples(count: int) -> int:
    """Return how many examples, seeds or worlds are tried where `count` are when time is no matter.

    With IMAGO_EXAMPLES=few a tenth, at least ten: the first ones, so that no run tries others.
    """
    return max(count // SHARE, min(count, LEAST)) if IS_SHORT else count
