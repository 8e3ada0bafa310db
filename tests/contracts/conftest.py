"""Registries that the contract suite runs against: the one in memory, and a real ZooKeeper."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.registry import Backend, MemoryBackend, Registry, ZooKeeperBackend
from imago_testing.processes.zookeeper import RunningZooKeeper, running_zookeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZooKeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


_chroots = itertools.count()


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
async def registry(request: pytest.FixtureRequest) -> AsyncIterator[Registry]:
    backend: Backend
    if request.param == "memory":
        backend = MemoryBackend()
    else:
        server = request.getfixturevalue("zookeeper")
        backend = ZooKeeperBackend(server, f"/test-{next(_chroots)}")
    registry = Registry(backend)
    yield registry
    await registry.close()
