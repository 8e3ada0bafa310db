"""A whole broker in this process, and a client of its gRPC port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.model.topics.topics import TopicConfig
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.sdk_peer import SdkPeer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

TYPES = {"plain": "NORMAL", "ordered": "FIFO", "late": "DELAY", "half": "TRANSACTION"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with a topic of each type, named as in `TYPES`, and `mixed`."""
    async with running_broker(tmp_path) as running:
        for name, kind in {**TYPES, "mixed": "MIXED"}.items():
            config = TopicConfig(
                name=name, read_queues=2, write_queues=2, attributes={"message.type": kind}
            )
            running.topics.create_or_update(config)
        yield running


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[SdkPeer]:
    connected = await SdkPeer.connect(broker.ports.grpc_port)
    yield connected
    await connected.close()
