"""What tests of the command share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.zookeeper import RunningZooKeeper, running_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZooKeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
