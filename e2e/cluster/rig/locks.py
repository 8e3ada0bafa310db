"""One process at a time, where several on this machine share what is cached."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rig.places import CACHE

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def alone(what: str) -> Iterator[None]:
    """Nobody else does this while the block runs; waits until that is so."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
