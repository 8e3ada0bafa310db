"""A small store in real files, and a folder as a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.stores.backups import FakeBucket
from imago_testing.stores.in_memory import FakeClock
from imago_testing.stores.on_disk import open_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_log import MessageStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    store = open_files(tmp_path / "running", clock)
    yield store
    store.close()


@pytest.fixture
def bucket(tmp_path: Path) -> FakeBucket:
    return FakeBucket(tmp_path / "bucket")
