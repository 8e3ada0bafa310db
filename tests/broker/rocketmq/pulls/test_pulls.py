"""Pulls over real sockets: what is found, what is held, what wakes it, what is refused."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.model.topics.topics import TopicConfig
from imago_log.errors import CorruptLogError
from imago_log.lifecycle.forced import ForcedRange
from imago_testing.peers.popping import pop_ext
from imago_testing.peers.remoting import RemotingPeer, heartbeat, pull_ext, send_ext
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import BatchEntry, decode_messages, encode_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker

    Connect = Callable[..., Awaitable[RemotingPeer]]

SUSPEND = 0x2 | 0x4
OFFSETS = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")


def places(answer: object) -> list[str]:
    ext = getattr(answer, "ext", {})
    return [ext[name] for name in OFFSETS]


async def fill(peer: RemotingPeer, topic: str, count: int, *, size: int = 10) -> None:
    entries = [BatchEntry(b"%010d" % n + b"." * (size - 10)) for n in range(count)]
    for at in range(0, count, 1000):
        answer = await peer.call(320, send_ext(topic), encode_batch(entries[at : at + 1000]))
        assert answer.code == ResponseCode.SUCCESS


async def held(broker: Broker, count: int) -> None:
    """Wait until so many pulls are held."""
    while len(broker.rocketmq.delivery.hold) != count:  # noqa: ASYNC110  nothing tells when it happens
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("offset", "code", "remark", "next_offset"),
    [
        (0, ResponseCode.SUCCESS, "FOUND", "3"),
        (2, ResponseCode.SUCCESS, "FOUND", "3"),
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "3"),
        (4, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "3"),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", "0"),
    ],
)
async def test_pull_answers_by_where_it_asks(
    peer: RemotingPeer, offset: int, code: ResponseCode, remark: str, next_offset: str
) -> None:
    await fill(peer, "T", 3)
    answer = await peer.pull("T", offset)
    assert (answer.code, answer.remark) == (code, remark)
    assert places(answer) == ["0", next_offset, "0", "3"]


@pytest.mark.parametrize(
    ("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)]
)
async def test_pull_of_an_empty_queue_moves_only_those_who_are_ahead(
    peer: RemotingPeer, offset: int, code: ResponseCode
) -> None:
    await peer.put("T", b"x", queue_id=1)
    answer = await peer.pull("T", offset)
    assert answer.code == code
    assert places(answer) == ["0", "0", "0", "0"]


async def test_pull_passes_over_other_tags_and_moves_on(peer: RemotingPeer) -> None:
    for tag in "abab":
        await peer.put("T", tag.encode(), properties=f"TAGS\x01{tag}\x02")
    found = await peer.pull("T", subscription="b || c")
    assert [m.body for m in decode_messages(found.body)] == [b"b", b"b"]
    assert found.ext["nextBeginOffset"] == "4"
    none = await peer.pull("T", subscription="c")
    assert none.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert none.remark == "NO_MATCHED_MESSAGE"
    assert none.ext["nextBeginOffset"] == "4"


@pytest.mark.parametrize("blank", [" ", "\t", " || ", " * "])
async def test_expression_of_blanks_selects_nothing(peer: RemotingPeer, blank: str) -> None:
    for tag in ("a", ""):
        await peer.put("T", b"x", properties=f"TAGS\x01{tag}\x02" if tag else "")
    for _ in range(2):
        none = await peer.pull("T", subscription=blank)
        assert none.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert none.ext["nextBeginOffset"] == "2"
    for every in ("*", ""):
        assert len(decode_messages((await peer.pull("T", subscription=every)).body)) == 2
    told = json.loads(heartbeat("G"))
    told["consumerDataSet"][0]["subscriptionDataSet"][0]["subString"] = blank
    await peer.call(RequestCode.HEART_BEAT, {}, json.dumps(told).encode())
    registered = await peer.pull("T", sysFlag=0, consumerGroup="G")
    assert registered.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    popped = await peer.call(RequestCode.POP_MESSAGE, pop_ext(exp=blank, expType="TAG"))
    assert (popped.code, popped.body) == (ResponseCode.POLLING_TIMEOUT, b"")
    refused = await peer.pull("T", subscription="||")
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_ordinary_answer_is_limited_to_what_rocketmq_sends(peer: RemotingPeer) -> None:
    await fill(peer, "T", 400, size=1000)
    answer = await peer.pull("T", maxMsgNums=10_000, maxMsgBytes=64 << 20)
    assert 200 < len(decode_messages(answer.body)) < 256
    assert len(answer.body) <= 256 << 10
    few = await peer.pull("T", maxMsgNums=7)
    assert len(decode_messages(few.body)) == 7


async def test_one_message_is_returned_however_large_it_is(peer: RemotingPeer) -> None:
    await peer.put("T", b"x" * (1 << 20))
    await peer.put("T", b"y")
    (message,) = await peer.messages("T", maxMsgBytes=100)
    assert len(message.body) == 1 << 20


async def test_client_that_asks_for_it_gets_ten_thousand_messages(peer: RemotingPeer) -> None:
    await fill(peer, "T", 12_000)
    answer = await peer.pull("T", maxMsgNums=20_000, imagoBatch="true")
    assert len(decode_messages(answer.body)) == 10_000
    assert answer.ext["nextBeginOffset"] == "10000"


async def test_client_that_asks_for_it_gets_four_mebibytes(peer: RemotingPeer) -> None:
    await fill(peer, "T", 6000, size=1000)
    answer = await peer.pull("T", maxMsgNums=10_000, imagoBatch="true", maxMsgBytes=64 << 20)
    assert 3 << 20 < len(answer.body) <= 4 << 20


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_held_pull_is_answered_by_the_append(
    peer: RemotingPeer, connect: Connect, broker: Broker, code: RequestCode
) -> None:
    await peer.put("T", b"old", queue_id=1)
    waiting = await connect()
    opaque = waiting.send(code, pull_ext("T", 0, sysFlag=SUSPEND))
    await held(broker, 1)
    await peer.put("T", b"new")
    answer = await waiting.answer(opaque)
    assert answer.code == ResponseCode.SUCCESS
    assert [m.body for m in decode_messages(answer.body)] == [b"new"]
    assert len(broker.rocketmq.delivery.hold) == 0


async def test_held_pull_whose_read_fails_is_told_so(
    peer: RemotingPeer, connect: Connect, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.put("T", b"old", queue_id=1)
    waiting = await connect()
    opaque = waiting.send(RequestCode.PULL_MESSAGE, pull_ext("T", 0, sysFlag=SUSPEND))
    await held(broker, 1)

    def damaged(*_: object, **__: object) -> None:
        raise CorruptLogError(Path("log"), 0, "damaged")

    monkeypatch.setattr(broker.store, "read", damaged)
    answer = await peer.put("T", b"new")
    assert answer.code == ResponseCode.SUCCESS
    assert (await waiting.answer(opaque)).code == ResponseCode.SYSTEM_ERROR
    assert len(broker.rocketmq.delivery.hold) == 0


async def test_held_pull_sleeps_on_through_messages_that_it_does_not_want(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    await peer.put("T", b"0", queue_id=1)
    waiting = await connect()
    opaque = waiting.send(11, pull_ext("T", 0, sysFlag=SUSPEND, subscription="b"))
    await held(broker, 1)
    for tag in "aa":
        await peer.put("T", tag.encode(), properties=f"TAGS\x01{tag}\x02")
    assert len(broker.rocketmq.delivery.hold) == 1
    await peer.put("T", b"b", properties="TAGS\x01b\x02")
    answer = await waiting.answer(opaque)
    assert [m.body for m in decode_messages(answer.body)] == [b"b"]
    assert answer.ext["nextBeginOffset"] == "3"


async def test_held_pull_is_answered_when_its_time_is_up(
    peer: RemotingPeer, broker: Broker
) -> None:
    await peer.put("T", b"x", queue_id=1)
    answer = await peer.pull("T", sysFlag=SUSPEND, suspendTimeoutMillis=1)
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert len(broker.rocketmq.delivery.hold) == 0


async def test_unmatched_messages_move_a_held_pull_on_when_its_time_is_up(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    await peer.put("T", b"x", queue_id=1)
    waiting = await connect()
    opaque = waiting.send(
        11, pull_ext("T", 0, sysFlag=SUSPEND, subscription="b", suspendTimeoutMillis=300)
    )
    await held(broker, 1)
    await peer.put("T", b"a", properties="TAGS\x01a\x02")
    answer = await waiting.answer(opaque)
    assert answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
    assert answer.ext["nextBeginOffset"] == "1"


async def test_closed_connection_takes_its_held_pulls_along(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    await peer.put("T", b"x", queue_id=1)
    waiting = await connect()
    for _ in range(3):
        waiting.send(11, pull_ext("T", 0, sysFlag=SUSPEND))
    await held(broker, 3)
    await waiting.close()
    await held(broker, 0)
    assert broker.rocketmq.lanes.pull.running == 0


async def test_deleted_topic_answers_the_pulls_held_on_it(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    await peer.put("T", b"x", queue_id=1)
    waiting = await connect()
    opaque = waiting.send(11, pull_ext("T", 0, sysFlag=SUSPEND))
    await held(broker, 1)
    assert (await peer.call(215, {"topic": "T"})).code == ResponseCode.SUCCESS
    assert (await waiting.answer(opaque)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_stopping_broker_answers_held_pulls(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    await peer.put("T", b"x", queue_id=1)
    waiting = await connect()
    opaque = waiting.send(11, pull_ext("T", 0, sysFlag=SUSPEND))
    await held(broker, 1)
    stopping = asyncio.create_task(broker.stop())
    assert (await waiting.answer(opaque)).code == ResponseCode.PULL_NOT_FOUND
    await stopping
    assert await waiting.closed()


async def test_commit_flag_of_a_pull_commits(peer: RemotingPeer, broker: Broker) -> None:
    await fill(peer, "T", 3)
    await peer.pull("T", 2, sysFlag=0x1 | 0x4, commitOffset=2)
    assert broker.offsets.query("consumers", "T", 0) == 2


async def test_subscription_of_the_heartbeat_filters_a_pull_without_one(
    peer: RemotingPeer,
) -> None:
    await peer.put("T", b"a", properties="TAGS\x01a\x02")
    await peer.put("T", b"b", properties="TAGS\x01b\x02")
    heartbeat = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING",'
        b'"subscriptionDataSet":[{"codeSet":[98],"subString":"b","subVersion":7,'
        b'"tagsSet":["b"],"topic":"T"}]}]}'
    )
    assert (await peer.call(34, {}, heartbeat)).code == ResponseCode.SUCCESS
    by_heartbeat: dict[str, Any] = {"consumerGroup": "G", "sysFlag": 0, "subVersion": 7}
    assert [m.body for m in await peer.messages("T", **by_heartbeat)] == [b"b"]
    late = await peer.pull("T", consumerGroup="G", sysFlag=0, subVersion=8)
    assert late.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    await peer.put("Other", b"x")
    other = await peer.pull("Other", consumerGroup="G", sysFlag=0)
    assert other.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_pull_refusals_are_those_of_rocketmq(peer: RemotingPeer, broker: Broker) -> None:
    await peer.put("T", b"x")
    broker.topics.create_or_update(TopicConfig(name="W", read_queues=1, write_queues=1, perm=2))
    unknown = await peer.pull("Nobody")
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    closed = await peer.pull("W")
    assert closed.code == ResponseCode.NO_PERMISSION
    assert closed.remark == "the topic[W] pulling message is forbidden"
    for queue_id in (-1, 4):
        beyond = await peer.pull("T", queueId=queue_id)
        assert beyond.code == ResponseCode.INVALID_PARAMETER
        assert (beyond.remark or "").startswith(f"queueId[{queue_id}] is illegal, topic:[T]")
    no_heartbeat = await peer.pull("T", sysFlag=0)
    assert no_heartbeat.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    unknown_kind = await peer.pull("T", expressionType="XPATH", subscription="a > 1")
    assert unknown_kind.code == ResponseCode.SYSTEM_ERROR
    assert unknown_kind.remark == (
        "The broker does not support consumer to filter message by XPATH"
    )
    senseless = await peer.pull("T", subscription="||")
    assert senseless.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    settings = broker.groups.get("consumers")
    assert settings is not None
    broker.groups.update(replace(settings, consume_enable=False))
    disabled = await peer.pull("T")
    assert disabled.code == ResponseCode.NO_PERMISSION
    assert disabled.remark == "subscription group no permission, consumers"


async def test_pull_from_where_a_full_disk_took_messages_hears_why(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(peer, "T", 3)
    for went in (None, ForcedRange(0, 4096, 1, 1)):
        monkeypatch.setattr(broker.store.forced, "last", lambda went=went: went)
        for place, flags in ((-1, 0x4), (-1, SUSPEND), (7, 0x4)):
            answer = await peer.pull("T", place, sysFlag=flags)
            assert answer.code == ResponseCode.PULL_OFFSET_MOVED
            told = "for want of room" in (answer.remark or "")
            assert told == (went is not None and place < 0), answer.remark
