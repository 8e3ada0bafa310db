"""Pulls that find messages take a fast path: their answers are those of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.processors.rocketmq.pull import pull_path
from imago_broker.processors.rocketmq.pull.pull import PullProcessor
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.remoting import RemotingPeer, heartbeat, pull_ext
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import SerializeType
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.model.access.access import Need
    from imago_broker.processors.rocketmq.exchange import Exchange, Reply


class OnlyLooks:
    """A hook that refuses nothing: with one, every request goes through the table."""

    def before(self, exchange: Exchange) -> None:
        """Let it pass."""

    def require(self, exchange: Exchange, needs: Sequence[Need]) -> None:
        """Let it have this."""

    def after(self, exchange: Exchange, reply: Reply) -> None:
        """Let it pass, too."""


@pytest.fixture
def through_table(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count the pulls that the table serves, by their topics."""
    served: list[str] = []
    pull = PullProcessor.pull

    def counted(self: PullProcessor, exchange: Exchange) -> Reply | None:
        served.append(exchange.ext["topic"])
        return pull(self, exchange)

    monkeypatch.setattr(PullProcessor, "pull", counted)
    return served


def look_on(broker: Broker, *hooks: OnlyLooks) -> None:
    broker.ports.rocketmq.protocol_factory.__self__.table.hooks = hooks  # type: ignore[attr-defined]


ALL: dict[str, Any] = {"maxMsgNums": 10_000, "maxMsgBytes": 4 << 20, "imagoBatch": "true"}


async def fill(peer: RemotingPeer, count: int = 9) -> None:
    for number in range(count):
        tag = "ab"[number % 2]
        await peer.put("T", b"%d" % number * 50, properties=f"TAGS\x01{tag}\x02")
        await peer.put("other", b"between")


@pytest.mark.parametrize("form", list(SerializeType))
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"queueOffset": 4, "maxMsgNums": 2},
        {"maxMsgNums": 0},
        {"maxMsgBytes": 1},
        {"maxMsgBytes": 400},
        {"subscription": "a"},
        {"subscription": "", "expressionType": "TAG"},
        {"sysFlag": 4 | 2},
        {"sysFlag": 4 | 1, "commitOffset": 3},
        ALL,
    ],
)
async def test_answers_are_those_of_the_table(
    through_table: list[str],
    broker: Broker,
    peer: RemotingPeer,
    more: dict[str, Any],
    form: SerializeType,
) -> None:
    await fill(peer)
    ext = pull_ext("T", **more)
    await peer.call(11, ext)  # makes the group
    before = len(through_table)
    short = await peer.call(11, ext, serialize=form)
    assert len(through_table) == before, "it took the fast path"
    messages, size = (
        broker.rocketmq.delivery.traffic.messages,
        broker.rocketmq.delivery.traffic.bytes,
    )
    look_on(broker, OnlyLooks())
    whole = await peer.call(11, ext, serialize=form)
    assert len(through_table) == before + 1
    assert replace(short, opaque=0) == replace(whole, opaque=0)
    assert short.code == ResponseCode.SUCCESS
    found = len(decode_messages(short.body))
    assert (broker.rocketmq.delivery.traffic.messages, broker.rocketmq.delivery.traffic.bytes) == (
        messages + found,
        size + len(short.body),
    )
    committed = broker.rocketmq.broker.offsets.query("consumers", "T", 0)
    assert committed == (3 if ext["commitOffset"] else None)


async def test_a_registered_subscription_counts_where_the_pull_brings_none(
    through_table: list[str], peer: RemotingPeer
) -> None:
    await fill(peer, 2)
    await peer.call(RequestCode.HEART_BEAT, {}, heartbeat("consumers"))
    await peer.pull("T")
    through_table.clear()
    assert len(await peer.messages("T", sysFlag=0, subscription="", subVersion=1)) == 2
    assert not through_table
    newer = await peer.pull("T", sysFlag=0, subVersion=2)
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_what_needs_a_closer_look_goes_through_the_table(
    through_table: list[str], broker: Broker, peer: RemotingPeer
) -> None:
    await fill(peer, 2)
    assert (await peer.pull("T")).code == ResponseCode.SUCCESS
    assert through_table == ["T"], "the first pull makes the group"
    through_table.clear()
    groups, topics = broker.rocketmq.broker.groups, broker.topics
    group, topic = groups.get("consumers"), topics.get("T")
    assert group
    assert topic
    cases: list[tuple[dict[str, Any], int]] = [
        ({"queueOffset": 2}, ResponseCode.PULL_NOT_FOUND),
        ({"queueOffset": 7}, ResponseCode.PULL_OFFSET_MOVED),
        ({"queueId": 99}, ResponseCode.INVALID_PARAMETER),
        ({"subscription": "c"}, ResponseCode.PULL_RETRY_IMMEDIATELY),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expressionType": "SQL92", "subscription": "TAGS = 'a'"}, ResponseCode.SUCCESS),
    ]
    for more, code in cases:
        assert (await peer.pull("T", **more)).code == code, more
    assert len(through_table) == len(cases)
    groups.update(replace(group, consume_enable=False))
    assert (await peer.pull("T")).code == ResponseCode.NO_PERMISSION
    groups.update(replace(group, forbidden_topics=("T",)))
    assert (await peer.pull("T")).code == ResponseCode.NO_PERMISSION
    groups.update(group)
    topics.create_or_update(replace(topic, perm=2))
    assert (await peer.pull("T")).code == ResponseCode.NO_PERMISSION
    topics.create_or_update(topic)
    broker.rocketmq.clients.resets.add("consumers", "T", 0, 1)
    moved = await peer.pull("T")
    assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    through_table.clear()
    assert (await peer.pull("T")).code == ResponseCode.SUCCESS
    assert not through_table


async def test_a_fault_in_the_short_way_leaves_the_pull_to_the_table(
    through_table: list[str], peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(peer, 2)
    await peer.pull("T")
    through_table.clear()

    def breaks(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(pull_path, "answer_limits", breaks)
    assert len(await peer.messages("T")) == 2
    assert through_table == ["T"]


@pytest.mark.parametrize("pause", [4096, 1 << 20])
async def test_many_pulls_of_one_read_are_answered_once_each_and_in_order(
    tmp_path: Path, pause: int
) -> None:
    async with running_broker(tmp_path, f"limits.output_bytes_pause={pause}") as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await fill(peer)
        await peer.pull("T")
        asked = [
            (number % 9, peer.send(11, pull_ext("T", number % 9, maxMsgNums=2)))
            for number in range(200)
        ]
        for offset, opaque in asked:
            [first, *_] = decode_messages((await peer.answer(opaque)).body)
            assert first.queue_offset == offset
        await peer.close()
