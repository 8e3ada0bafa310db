"""Tests close what they open, and each is the one that fails for what it leaves.

What nobody closes is found by the garbage collector, at some time, in whatever test runs then: so
it looks behind each test, and there alone is little to look at.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def modules_close_what_they_open() -> Iterator[None]:
    """Collect what a module's fixtures leave; what is alive then is looked at no more."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def tests_close_what_they_open() -> Iterator[None]:
    """Collect what a test leaves."""
    yield
    gc.collect()
