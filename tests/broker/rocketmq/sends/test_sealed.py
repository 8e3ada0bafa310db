"""A sealed topic over RocketMQ: producers are sent elsewhere, readers read on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.model.topics.sealing import DRAIN
from imago_broker.model.topics.topics import TopicConfig
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer


def seal(broker: Broker, name: str, *, linger_ms: int = 0) -> None:
    until_ms = broker.clock.epoch_ms() + linger_ms
    broker.topics.seal(name, until_ms=until_ms, cause=DRAIN)


@pytest.fixture
async def topic(broker: Broker) -> str:
    broker.topics.create_or_update(TopicConfig(name="T", write_queues=2, read_queues=2))
    return "T"


@pytest.mark.parametrize("queue_id", [0, 1, -1])
async def test_sends_get_the_code_that_makes_producers_try_another_broker(
    broker: Broker, peer: RemotingPeer, topic: str, queue_id: int
) -> None:
    await peer.put(topic, b"before", queue_id=0)
    seal(broker, topic)
    refused = await peer.put(topic, b"after", queue_id=queue_id)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.remark == "the topic[T] sending message is forbidden"
    assert [m.body for m in await peer.messages(topic)] == [b"before"]


@pytest.mark.parametrize("queue_id", [1, -1])
async def test_producers_that_have_not_looked_are_served_for_a_while(
    broker: Broker, peer: RemotingPeer, topic: str, queue_id: int
) -> None:
    seal(broker, topic, linger_ms=600_000)
    assert (await peer.put(topic, b"late", queue_id=queue_id)).code == ResponseCode.SUCCESS
    outside = await peer.put(topic, b"x", queue_id=2)
    assert outside.code != ResponseCode.SUCCESS


async def test_it_takes_messages_again_when_it_is_opened(
    broker: Broker, peer: RemotingPeer, topic: str
) -> None:
    seal(broker, topic)
    broker.topics.unseal(topic)
    assert (await peer.put(topic, b"x", queue_id=1)).code == ResponseCode.SUCCESS


async def test_a_sealed_retry_topic_takes_what_consumers_give_back(
    broker: Broker, peer: RemotingPeer, topic: str
) -> None:
    await peer.put(topic, b"x", queue_id=0)
    (message,) = await peer.messages(topic)
    broker.topics.create_or_update(TopicConfig(name="%RETRY%g", write_queues=1, read_queues=1))
    for name in (topic, "%RETRY%g"):
        seal(broker, name)
    back = {"offset": message.physical_offset, "group": "g", "delayLevel": 1}
    answer = await peer.call(36, {k: str(v) for k, v in back.items()})
    assert answer.code == ResponseCode.SUCCESS
    # Sent to it as to any topic, it is one that is sealed.
    refused = await peer.put("%RETRY%g", b"y", queue_id=0)
    assert refused.code == ResponseCode.NO_PERMISSION
