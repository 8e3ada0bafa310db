"""Static topics of a shard with several members: whoever leads serves their global queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.static_topics import HERE, mapping, told
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CROSSED = mapping("shard-0", {0: HERE, 1: ((0, "shard-0", 0, 0),)})
"""Each of the two global queues is in the broker's queue of the other one's number."""


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[ShardBrokers]:
    brokers = ShardBrokers(tmp_path)
    await brokers.start(0, 1, 2)
    try:
        yield brokers
    finally:
        await brokers.close()


async def send(shard: ShardBrokers, number: int, body: bytes) -> tuple[str, str]:
    peer = await RemotingPeer.connect(shard.brokers[number].rocketmq_port)
    answer = await peer.put("S", body)
    await peer.close()
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.ext["queueId"], answer.ext["queueOffset"]


async def read(shard: ShardBrokers, number: int) -> list[bytes]:
    peer = await RemotingPeer.connect(shard.brokers[number].rocketmq_port)
    messages = await peer.messages("S")
    await peer.close()
    return [each.body for each in messages]


async def tell(shard: ShardBrokers, number: int) -> None:
    peer = await RemotingPeer.connect(shard.brokers[number].rocketmq_port)
    assert (await told(peer, CROSSED)).code == ResponseCode.SUCCESS
    await peer.close()


async def test_next_master_puts_messages_where_the_queues_are(shard: ShardBrokers) -> None:
    first = await shard.led()
    await shard.all_in_sync(0, 1, 2)
    await tell(shard, first)
    assert await send(shard, first, b"one") == ("0", "0")
    await shard.kill(first)
    second = await shard.led(but=first)
    await shard.all_in_sync(*{0, 1, 2} - {first})
    assert await send(shard, second, b"two") == ("0", "1")
    assert await read(shard, second) == [b"one", b"two"]


async def test_member_that_was_restarted_knows_the_queues(shard: ShardBrokers) -> None:
    first = await shard.led()
    await shard.all_in_sync(0, 1, 2)
    await tell(shard, first)
    assert await send(shard, first, b"one") == ("0", "0")
    for number in (0, 1, 2):
        await shard.stop(number)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    assert await send(shard, await shard.led(), b"two") == ("0", "1")


async def test_members_follow_what_becomes_of_a_static_topic(shard: ShardBrokers) -> None:
    leader = await shard.led()
    await shard.all_in_sync(0, 1, 2)
    known = [broker.rocketmq.names.static_topics.known for broker in shard.brokers.values()]
    await tell(shard, leader)
    await until(lambda: all(each == {"S"} for each in known))
    peer = await RemotingPeer.connect(shard.brokers[leader].rocketmq_port)
    await peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "S"})
    await peer.close()
    await until(lambda: not any(known))
