"""A broker that also answers the name service, and clients of that port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_testing.peers.admin import broker_config
from imago_testing.peers.remoting import RemotingPeer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    running = Broker(broker_config(tmp_path))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.fixture
async def connect(broker: Broker) -> AsyncIterator[Callable[..., Awaitable[RemotingPeer]]]:
    """Open connections, by default to the name service."""
    peers: list[RemotingPeer] = []

    async def opened(port: int | None = None) -> RemotingPeer:
        peers.append(await RemotingPeer.connect(port or broker.ports.namesrv_port))
        return peers[-1]

    yield opened
    for peer in peers:
        await peer.close()


@pytest.fixture
async def peer(connect: Callable[..., Awaitable[RemotingPeer]]) -> RemotingPeer:
    return await connect()
