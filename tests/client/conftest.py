"""A broker in the test's process, and clients of it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from imago_client import Client
from imago_client.metaq import MetaqConfig, MetaqSessionFactory
from imago_testing.clusters.brokers import running_broker
from imago_testing.processes.zookeeper import RunningZooKeeper, running_zookeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from imago_broker.app import Broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as running:
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return f"127.0.0.1:{broker.ports.namesrv_port}"


@pytest.fixture
def metaq_server(broker: Broker) -> str:
    return f"127.0.0.1:{broker.metaq_port}"


@pytest.fixture
async def client(bootstrap: str) -> AsyncIterator[Client]:
    async with Client(bootstrap) as made:
        yield made


# MetaQ's clients over a ZooKeeper, a part of it for each test

TREE_TOPICS = ("topics.orders.queues=4", "topics.other.queues=2")
_chroots = itertools.count()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZooKeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def address(zookeeper: RunningZooKeeper) -> str:
    return f"{zookeeper.address}/client-{next(_chroots)}"


@pytest.fixture
async def tree_broker(tmp_path: Path, address: str) -> AsyncIterator[Broker]:
    at = f"zookeeper.connect={address}"
    async with running_broker(tmp_path / "data", at, *TREE_TOPICS) as running:
        yield running


@pytest.fixture
def config(address: str) -> MetaqConfig:
    return MetaqConfig(zookeeper=address, rebalance_pause_s=0.05, zk_session_timeout_s=6)


@pytest.fixture
async def factory(tree_broker: Broker, config: MetaqConfig) -> AsyncIterator[MetaqSessionFactory]:
    del tree_broker  # is there
    async with MetaqSessionFactory(config) as made:
        yield made


@pytest.fixture
def tree(address: str) -> Iterator[KazooClient]:
    client = KazooClient(address)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()
