"""The processes of one shard, for the tests that need real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.shard_processes import Members
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        made = Members(tmp_path, zookeeper.address)
        try:
            yield made
        finally:
            made.end()
