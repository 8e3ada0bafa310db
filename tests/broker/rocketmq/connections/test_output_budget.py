"""What all connections have not read yet bounds how large answers become."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.remoting import RemotingPeer, pull_ext
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

ALL: dict[str, Any] = {"maxMsgNums": 10_000, "maxMsgBytes": 4 << 20, "imagoBatch": "true"}
TOTAL = 1 << 20


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, f"limits.output_bytes_total_max={TOTAL}") as running:
        yield running


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[RemotingPeer]:
    connected = await RemotingPeer.connect(broker.rocketmq_port)
    for _ in range(8):
        await connected.put("T", bytes(512 << 10))
    yield connected
    await connected.close()


async def test_answers_become_small_and_then_none_are_given(
    broker: Broker, peer: RemotingPeer
) -> None:
    budget = broker.ports.budget
    assert len((await peer.pull("T", **ALL)).body) > 3 << 20
    budget.hold(TOTAL)
    assert len(await peer.messages("T", **ALL)) == 1, "one message is always whole"
    budget.hold(TOTAL)
    assert (await peer.pull("T", **ALL)).code == ResponseCode.SYSTEM_BUSY
    budget.release(2 * TOTAL)
    assert len((await peer.pull("T", **ALL)).body) > 3 << 20


async def test_unread_answers_are_counted_while_they_wait(
    broker: Broker, peer: RemotingPeer
) -> None:
    budget = broker.ports.budget
    # A transport that takes nothing stands for a peer that does not read.
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.rocketmq_port, limit=1)
    stalled = RemotingPeer(reader, writer)
    for _ in range(3):
        stalled.send(11, pull_ext("T", **ALL))
    answer = await peer.pull("T", **ALL)
    while not budget.held:
        answer = await peer.pull("T", **ALL)
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY)
    await stalled.close()
    while budget.held:
        await peer.pull("T", maxMsgNums=1)
    assert budget.held == 0
