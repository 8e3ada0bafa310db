"""A broker with a few topics, and a client of its MetaQ port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import uvloop

from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import MetaqPeer, metaq_peer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from imago_broker.app import Broker


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run on the loop that the broker's process has."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    topics = ("topics.test.queues=4", "topics.plain.queues=1", "topics.plain.dialects=rocketmq")
    async with running_broker(tmp_path / "data", *topics) as running:
        yield running


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[MetaqPeer]:
    async with metaq_peer(broker.metaq_port) as connected:
        yield connected
