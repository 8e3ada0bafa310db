"""SQL92 subscriptions over real sockets: pulls, held pulls, refusals, one pull's work."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.processors.rocketmq.pull import pull, subscriptions
from imago_log.reading import by_offset, by_properties
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import BatchEntry, decode_messages, encode_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker

    Connect = Callable[..., Awaitable[RemotingPeer]]

SUSPEND = 0x2 | 0x4


async def put_priced(peer: RemotingPeer, prices: list[int], *, size: int = 4) -> None:
    entries = [
        BatchEntry(b"%d" % price + b"." * size, properties=b"price\x01%d\x02" % price)
        for price in prices
    ]
    for at in range(0, len(entries), 1000):
        answer = await peer.call(320, send_ext("T"), encode_batch(entries[at : at + 1000]))
        assert answer.code == ResponseCode.SUCCESS


def sql(text: str, **more: object) -> dict[str, Any]:
    return {"expressionType": "SQL92", "subscription": text, **more}


def prices(answer: Any) -> list[int]:
    return [int(message.body.rstrip(b".")) for message in decode_messages(answer.body)]


async def held(broker: Broker, count: int) -> None:
    """Wait until so many pulls are held."""
    while len(broker.rocketmq.delivery.hold) != count:  # noqa: ASYNC110  nothing tells when it happens
        await asyncio.sleep(0)


async def test_pull_returns_what_its_filter_wants_and_moves_on(peer: RemotingPeer) -> None:
    await put_priced(peer, [1, 9, 5, 7])
    found = await peer.pull("T", **sql("price BETWEEN 5 AND 7"))
    assert prices(found) == [5, 7]
    assert found.ext["nextBeginOffset"] == "4"
    few = await peer.pull("T", **sql("price > 1", maxMsgNums=2))
    assert prices(few) == [9, 5]
    assert few.ext["nextBeginOffset"] == "3"
    none = await peer.pull("T", **sql("price > 100"))
    assert (none.code, none.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert none.ext["nextBeginOffset"] == "4"


async def test_answer_of_a_filtered_pull_has_the_size_that_was_asked_for(
    peer: RemotingPeer,
) -> None:
    await put_priced(peer, list(range(1, 9)), size=1000)
    some = await peer.pull("T", **sql("price > 2", maxMsgBytes=3500))
    assert prices(some) == [3, 4]
    assert some.ext["nextBeginOffset"] == "4"
    one = await peer.pull("T", **sql("price > 2", maxMsgBytes=1))
    assert prices(one) == [3], "one message, however large"


async def test_held_pull_sleeps_until_its_filter_wants_what_arrives(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    await peer.put("T", b"0", queue_id=1)
    waiting = await connect()
    opaque = waiting.send(11, pull_ext("T", 0, sysFlag=SUSPEND, **sql("price > 5")))
    await held(broker, 1)
    await put_priced(peer, [1, 2])
    assert len(broker.rocketmq.delivery.hold) == 1
    await put_priced(peer, [9])
    answer = await waiting.answer(opaque)
    assert prices(answer) == [9]
    assert answer.ext["nextBeginOffset"] == "3"


@pytest.mark.parametrize("wanted", [sql("price = 7"), {"subscription": "seven"}])
async def test_held_pull_does_not_sleep_over_more_than_one_look(
    peer: RemotingPeer,
    connect: Connect,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    wanted: dict[str, Any],
) -> None:
    monkeypatch.setattr(by_offset, "FILTERED_UNITS_MAX", 5)
    monkeypatch.setattr(by_properties, "EXAMINED_MAX", 5)
    await peer.put("T", b"0", queue_id=1)
    waiting = await connect()
    asked = {"maxMsgNums": 5, "suspendTimeoutMillis": 600_000, **wanted}
    opaque = waiting.send(11, pull_ext("T", 0, sysFlag=SUSPEND, **asked))
    await held(broker, 1)
    await put_priced(peer, [1, 1, 1, 1, 1, 1, 1])
    answer = await waiting.answer(opaque)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext["nextBeginOffset"] == "5"


@pytest.mark.parametrize(
    ("limit", "value", "expected"),
    [("EXAMINED_MAX", 10, 10), ("EXAMINED_BYTES_MAX", 1500, 8), ("WORK_MAX", 900, 7)],
)
async def test_one_pull_looks_at_so_much_and_no_more(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, expected: int
) -> None:
    monkeypatch.setattr(by_properties, limit, value)
    await put_priced(peer, [1] * 50)
    answer = await peer.pull("T", **sql("price > 100", maxMsgNums=1))
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert 1 <= int(answer.ext["nextBeginOffset"]) <= max(expected, 10)
    assert int(answer.ext["nextBeginOffset"]) < 50


async def test_heartbeat_s_filter_selects_for_a_pull_without_one(
    peer: RemotingPeer, broker: Broker
) -> None:
    await put_priced(peer, [1, 9])

    def heartbeat(text: str, version: int) -> bytes:
        subscription = {
            "topic": "T",
            "subString": text,
            "expressionType": "SQL92",
            "subVersion": version,
        }
        consumer = {
            "groupName": "G",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        return json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()

    assert (await peer.call(34, {}, heartbeat("price > 5", 7))).code == ResponseCode.SUCCESS
    asked: dict[str, Any] = {"consumerGroup": "G", "sysFlag": 0, "subVersion": 7}
    assert prices(await peer.pull("T", **asked)) == [9]
    late = await peer.pull("T", **(asked | {"subVersion": 8}))
    assert late.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert (await peer.call(34, {}, heartbeat("price >", 8))).code == ResponseCode.SUCCESS
    wrong = await peer.pull("T", **asked)
    assert wrong.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert wrong.remark == (
        "The broker's consumer filter data is not exist!Your expression may be wrong!"
    )
    assert (await peer.call(34, {}, heartbeat("price > 1", 9))).code == ResponseCode.SUCCESS
    assert prices(await peer.pull("T", **asked)) == [9]
    settings = broker.rocketmq.settings
    settings.change(replace(settings.current, property_filter=False))
    off = await peer.pull("T", **asked)
    assert off.code == ResponseCode.SYSTEM_ERROR
    assert off.remark == "The broker does not support consumer to filter message by SQL92"


async def test_pull_with_a_bad_filter_is_refused(peer: RemotingPeer, broker: Broker) -> None:
    await put_priced(peer, [1])
    for text in ("price >", "", "price = 1 OR", "(" * 1000):
        answer = await peer.pull("T", **sql(text))
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert (answer.remark or "").startswith("parse the consumer's subscription failed: ")
    answer = await peer.pull("T", **sql("price >"))
    assert "at line 1, column 8" in (answer.remark or "")
    settings = broker.rocketmq.settings
    settings.change(replace(settings.current, property_filter=False))
    off = await peer.pull("T", **sql("price > 1"))
    assert off.code == ResponseCode.SYSTEM_ERROR
    assert off.remark == "The broker does not support consumer to filter message by SQL92"


@pytest.mark.parametrize("wanted", [sql("price = 7"), {"subscription": "||".join("abcdefgh" * 9)}])
async def test_pulls_that_would_be_too_much_to_hold_are_answered_soon(
    peer: RemotingPeer,
    connect: Connect,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    wanted: dict[str, Any],
) -> None:
    monkeypatch.setattr(pull, "HELD_WEIGHT_MAX", 4)
    monkeypatch.setattr(pull, "HEAVY_MS", 10)
    monkeypatch.setattr(subscriptions, "TAGS_OF_ONE", 4)
    await peer.put("T", b"0", queue_id=1)
    for _ in range(2):
        waiting = await connect()
        asked = {"suspendTimeoutMillis": 600_000, **wanted}
        opaques = [waiting.send(11, pull_ext("T", 0, sysFlag=SUSPEND, **asked)) for _ in range(3)]
        for opaque in opaques[2:]:
            assert (await waiting.answer(opaque)).code == ResponseCode.PULL_NOT_FOUND
        waiting.send(11, pull_ext("T", 0, sysFlag=SUSPEND))
        await held(broker, 3)
        assert not waiting.unread
        await waiting.close()
        await held(broker, 0)
