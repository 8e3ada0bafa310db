"""What RocketMQ's tools show of topics and groups: `mqadmin statsAll`, exporters of metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.metrics import registry
from imago_broker.service.figures import traffic, usage
from imago_broker.service.figures.usage import Usage
from imago_testing.clusters.shard_pair import eventually
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer

SPANS = ("statsMinute", "statsHour", "statsDay")


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "ASKED_APART_MS", 0)


async def lately(peer: RemotingPeer, name: Usage, key: str) -> dict[str, Any]:
    answer = await peer.call(Code.VIEW_BROKER_STATS_DATA, {"statsName": name.name, "statsKey": key})
    if answer.code != ResponseCode.SUCCESS:
        assert answer.remark == f"The stats <{name.name}> <{key}> not exist"
        return {}
    found: dict[str, Any] = json.loads(answer.body)
    assert found.keys() == {"statsMinute", "statsHour", "statsDay"}
    assert found["statsMinute"].keys() == {"sum", "tps", "avgpt"}
    return found


async def sums(peer: RemotingPeer, name: Usage, key: str) -> list[int]:
    found = await lately(peer, name, key)
    return (
        [found[span]["sum"] for span in ("statsMinute", "statsHour", "statsDay")] if found else []
    )


async def test_a_topic_shows_what_it_took(peer: RemotingPeer) -> None:
    assert not await lately(peer, Usage.TOPIC_PUT_NUMS, "t")
    for number in range(6):
        await peer.put("t", b"x" * 100, queue_id=number % 2)
    assert await sums(peer, Usage.TOPIC_PUT_NUMS, "t") == [6, 6, 6]
    assert await sums(peer, Usage.TOPIC_PUT_SIZE, "t") == [720, 720, 720]
    found = await lately(peer, Usage.TOPIC_PUT_NUMS, "t")
    assert 0 < found["statsMinute"]["tps"] <= 1
    assert found["statsMinute"]["avgpt"] == 1
    assert not await lately(peer, Usage.TOPIC_PUT_NUMS, "another")


async def test_a_group_shows_what_it_was_given_and_gave_back(peer: RemotingPeer) -> None:
    for _ in range(4):
        await peer.put("t", b"body")
    [message, *_] = await peer.messages("t")
    await peer.pull("t", 2)
    key = "t@consumers"
    assert (await sums(peer, Usage.GROUP_GET_NUMS, key))[0] == 6
    assert (await sums(peer, Usage.GROUP_GET_SIZE, key))[0] > 6 * 91
    assert (await lately(peer, Usage.GROUP_GET_NUMS, key))["statsMinute"]["avgpt"] == 3
    of_queues = [await lately(peer, Usage.GROUP_GET_LATENCY, f"{n}@{key}") for n in (0, 7)]
    [each_ms] = {found["statsMinute"]["avgpt"] for found in of_queues}
    assert each_ms > 0
    assert not await lately(peer, Usage.GROUP_GET_LATENCY, "0@another@consumers")
    back = {"offset": message.physical_offset, "group": "consumers", "delayLevel": 0}
    answer = await peer.call(Code.CONSUMER_SEND_MSG_BACK, {**back, "originTopic": "t"})
    assert answer.code == ResponseCode.SUCCESS
    assert (await sums(peer, Usage.SNDBCK_PUT_NUMS, key))[0] == 1


async def test_the_broker_shows_all_of_it(peer: RemotingPeer, broker: Broker) -> None:
    await peer.put("t", b"body")
    await peer.put("u", b"body")
    await peer.pull("t")
    cluster = broker.config.broker.cluster
    assert (await sums(peer, Usage.BROKER_PUT_NUMS, cluster))[0] >= 2
    assert (await sums(peer, Usage.BROKER_GET_NUMS, cluster))[0] == 1
    read = registry(broker.collector).get_sample_value
    assert read("imago_topic_messages_total", {"topic": "t"}) == 1
    assert read("imago_topic_bytes_total", {"topic": "t"}) == 24
    of_group = {"group": "consumers", "topic": "t"}
    assert read("imago_group_messages_out_total", of_group) == 1
    assert (read("imago_group_bytes_out_total", of_group) or 0) > 91
    assert (read("imago_group_read_seconds_total", of_group) or 0) > 0
    assert read("imago_group_sent_back_total", of_group) is None


async def test_a_topic_that_is_made_anew_begins_anew(peer: RemotingPeer) -> None:
    await peer.put("t", b"body")
    await peer.pull("t")
    assert await sums(peer, Usage.TOPIC_PUT_NUMS, "t") == [1, 1, 1]
    await peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    assert not await lately(peer, Usage.TOPIC_PUT_NUMS, "t")
    assert not await lately(peer, Usage.GROUP_GET_NUMS, "t@consumers")
    for _ in range(3):
        await peer.put("t", b"body")
    assert await sums(peer, Usage.TOPIC_PUT_NUMS, "t") == [3, 3, 3]


async def test_what_is_told_apart_is_bounded(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "COUNTERS_MAX", 3)
    monkeypatch.setattr(traffic, "READERS_MAX", 1)
    for topic in ("a", "b", "c"):
        await peer.put(topic, b"body")
        await peer.pull(topic)
    told = [await lately(peer, Usage.TOPIC_PUT_NUMS, topic) for topic in ("a", "b", "c")]
    assert sum(map(bool, told)) < 3
    assert not await lately(peer, Usage.GROUP_GET_NUMS, "c@consumers")


async def test_a_counter_that_nobody_knows_is_not_there(peer: RemotingPeer) -> None:
    unknown = {"statsName": "HOW_NICE", "statsKey": "t"}
    answer = await peer.call(Code.VIEW_BROKER_STATS_DATA, unknown)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "The stats <HOW_NICE> <t> not exist"


def topics_seen(broker: Broker) -> set[str]:
    figures = broker.rocketmq.delivery.usage
    return {key for name, key, _ in figures.totals() if name is Usage.TOPIC_PUT_NUMS}


async def test_a_look_at_many_queues_leaves_turns_to_others(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "PIECE", 2)
    monkeypatch.setattr(usage, "PIECE_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(usage, "LOOK_SECONDS", 0)
    topics = {f"t{number}" for number in range(7)}
    for topic in topics:
        await peer.put(topic, b"body")
        await peer.pull(topic)
    figures = broker.rocketmq.delivery.usage
    figures.tick()
    assert len(topics_seen(broker)) == 2
    figures.tick()  # a second later: the look goes on, and no other one begins
    await eventually(lambda: topics_seen(broker) == topics)


async def test_first_messages_of_a_topic_with_many_queues_count(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept for queues that are empty, and yet all that comes to one is counted."""
    monkeypatch.setattr(usage, "PIECE", 2)
    monkeypatch.setattr(usage, "LOOK_SECONDS", 0)
    for number in range(3):
        await peer.put("many", b"body", queue_id=number)
    assert (await sums(peer, Usage.TOPIC_PUT_NUMS, "many"))[0] == 3


async def test_a_look_that_has_begun_ends_when_somebody_asks(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "PIECE", 2)
    monkeypatch.setattr(usage, "LOOK_SECONDS", 0)
    for number in range(7):
        await peer.put(f"t{number}", b"body")
        await peer.pull(f"t{number}")
    broker.rocketmq.delivery.usage.tick()
    for number in range(7):
        assert (await sums(peer, Usage.TOPIC_PUT_NUMS, f"t{number}"))[0] == 1
        assert (await sums(peer, Usage.GROUP_GET_NUMS, f"t{number}@consumers"))[0] == 1


async def test_a_topic_that_goes_during_a_look_is_not_counted_again(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "PIECE", 1)
    monkeypatch.setattr(usage, "PIECE_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(usage, "LOOK_SECONDS", 0)
    for number in range(5):
        await peer.put(f"t{number}", b"body")
        await peer.pull(f"t{number}")
    figures = broker.rocketmq.delivery.usage
    figures.tick()
    broker.topics.delete("t3")
    await lately(peer, Usage.TOPIC_PUT_NUMS, "t4")
    assert not {key for _, key, _ in figures.totals() if key.startswith("t3")}
