"""A shard that is drained changes its master: seals and the drain go on with the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.model.topics.sealing import seal_of
from imago_broker.model.topics.topics import TopicConfig
from imago_testing.clusters.shard_brokers import TOPIC, ShardBrokers, until
from imago_testing.peers.metaq import metaq_peer, value_body
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[ShardBrokers]:
    """Two members in sync; member 0 leads."""
    made = ShardBrokers(tmp_path, "admin.enabled=true", replicas=2)
    try:
        await made.start(0, 1)
        await made.all_in_sync(0, 1)
        yield made
    finally:
        await made.close()


def seal(broker: Broker) -> TopicConfig | None:
    return broker.topics.seal(TOPIC, until_ms=0, cause="move")


async def refused(broker: Broker) -> bool:
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    answer = await peer.put(TOPIC, b"late", queue_id=0)
    await peer.close()
    return answer.code == ResponseCode.NO_PERMISSION


async def test_the_next_master_keeps_a_seal_and_serves_its_readers(shard: ShardBrokers) -> None:
    one, two = shard.brokers[0], shard.brokers[1]
    await shard.put(0, b"first")
    seal(one)
    await until(lambda: seal_of(two.topics.get(TOPIC) or TopicConfig(name="t")) is not None)
    assert await refused(one)
    await shard.kill(0)
    assert await shard.led(but=0) == 1
    assert await refused(two)
    peer = await RemotingPeer.connect(two.rocketmq_port)
    assert [message.body for message in await peer.messages(TOPIC)] == [b"first"]
    await peer.close()
    async with metaq_peer(two.metaq_port) as client:
        assert b"first" in value_body(await client.get(TOPIC, 0, 0))


async def test_the_next_master_goes_on_with_a_drain(shard: ShardBrokers) -> None:
    one, two = shard.brokers[0], shard.brokers[1]
    await one.coordinator.marks.drain_shard(0, "r")
    await until(lambda: one.topics.intake.cordoned)
    assert seal_of(one.topics.get(TOPIC) or TopicConfig(name="t")) is None, (
        "nobody takes its topics"
    )
    await shard.kill(0)
    assert await shard.led(but=0) == 1
    await until(lambda: two.topics.intake.cordoned)
    assert 0 in two.coordinator.view().draining
    await two.coordinator.marks.undrain_shard(0)
    await until(lambda: not two.topics.intake.cordoned)
