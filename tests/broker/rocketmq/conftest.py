"""A whole broker in this process, and clients of its RocketMQ ports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_testing.peers.admin import broker_config
from imago_testing.peers.remoting import RemotingPeer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from imago_broker.config import BrokerConfig


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    base = broker_config(tmp_path)
    return replace(base, store=replace(base.store, segment_bytes_max=32 << 20))


@pytest.fixture
async def broker(config: BrokerConfig) -> AsyncIterator[Broker]:
    running = Broker(config)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.fixture
async def connect(broker: Broker) -> AsyncIterator[Callable[..., Awaitable[RemotingPeer]]]:
    """Open connections to a port of the broker, by default the main RocketMQ port."""
    peers: list[RemotingPeer] = []

    async def opened(port: int | None = None) -> RemotingPeer:
        peers.append(await RemotingPeer.connect(port or broker.rocketmq_port))
        return peers[-1]

    yield opened
    for peer in peers:
        await peer.close()


@pytest.fixture
async def peer(connect: Callable[..., Awaitable[RemotingPeer]]) -> RemotingPeer:
    return await connect()
