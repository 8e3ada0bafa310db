"""Filters that are new: a turn of the loop compiles few of them, and the others' requests wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.core.sql92 import filters
from imago_broker.core.sql92.errors import FilterPendingError
from imago_broker.core.sql92.filters import FilterCache, PropertyFilter
from imago_testing.peers.remoting import RemotingPeer, pull_ext
from imago_wire.remoting.bodies.client import CheckClientRequestBody, SubscriptionData
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from imago_broker.app import Broker

    Connect = Callable[..., Awaitable[RemotingPeer]]

FILTERS = 30


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """One filter a turn."""
    monkeypatch.setattr(filters, "TURN_CHARS_MAX", 1)


@pytest.fixture
async def compiled(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counter[int]]:
    """Count the filters that each turn of the loop compiles."""
    loop = asyncio.get_running_loop()
    turn, counted, over = 0, Counter[int](), False

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if not over:
            loop.call_soon(next_turn)

    class Counted(PropertyFilter):
        def __init__(self, expression: str) -> None:
            counted[turn] += 1
            super().__init__(expression)

    monkeypatch.setattr(filters, "PropertyFilter", Counted)
    next_turn()
    yield counted
    over = True


def filtered(number: int, **more: Any) -> dict[str, object]:
    wanted = f"part = {number} OR part = -1"
    return pull_ext("T", expressionType="SQL92", subscription=wanted, **more)


async def fill(peer: RemotingPeer) -> None:
    for number in range(FILTERS):
        await peer.put("T", b"%d" % number, properties=f"part\x01{number}\x02")


@pytest.mark.usefixtures("tiny")
async def test_a_turn_compiles_one_filter_where_it_may_compile_no_more(
    broker: Broker, connect: Connect, compiled: Counter[int]
) -> None:
    one, other = await connect(), await connect()
    await fill(one)
    asked = [
        (peer, number, peer.send(11, filtered(number)))
        for number in range(FILTERS)
        for peer in (one, other)
    ]
    for peer, number, opaque in asked:
        answer = await peer.answer(opaque)
        assert [m.body for m in decode_messages(answer.body)] == [b"%d" % number]
    assert sum(compiled.values()) == FILTERS
    assert set(compiled.values()) == {1}
    assert all(lane.running == 0 for lane in broker.rocketmq.lanes.by_name.values())


async def test_as_shipped_ordinary_filters_need_no_further_turn(
    connect: Connect, compiled: Counter[int]
) -> None:
    peer = await connect()
    await fill(peer)
    asked = [peer.send(11, filtered(number)) for number in range(FILTERS)]
    for opaque in asked:
        assert (await peer.answer(opaque)).code == ResponseCode.SUCCESS
    assert sum(compiled.values()) == FILTERS
    assert max(compiled.values()) > 1


@pytest.mark.usefixtures("tiny")
async def test_requests_behind_one_that_waits_keep_their_order(connect: Connect) -> None:
    peer = await connect()
    await fill(peer)
    first = [peer.send(11, filtered(number)) for number in range(3)]
    wrong = peer.send(11, pull_ext("T", expressionType="SQL92", subscription="part ="))
    put = peer.send(310, {})
    plain = peer.send(11, pull_ext("T"))
    wanted = [*first, wrong, put, plain]
    answers = {opaque: await peer.answer(opaque) for opaque in wanted}
    assert answers[wrong].code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert len(decode_messages(answers[plain].body)) == FILTERS


@pytest.mark.usefixtures("tiny")
async def test_other_requests_with_filters_wait_too(connect: Connect) -> None:
    peer = await connect()
    await fill(peer)
    subscriptions = [
        SubscriptionData(topic="T", sub_string=f"part = {n}", expression_type="SQL92")
        for n in range(3)
    ]
    asked = [
        peer.send(
            RequestCode.CHECK_CLIENT_CONFIG,
            {},
            CheckClientRequestBody(
                client_id="c", group="consumers", subscription_data=subscription
            ).encode(),
        )
        for subscription in subscriptions
    ]
    assert {(await peer.answer(opaque)).code for opaque in asked} == {ResponseCode.SUCCESS}


@pytest.mark.usefixtures("tiny")
async def test_a_connection_that_is_gone_waits_no_more(broker: Broker, connect: Connect) -> None:
    leaving, staying = await connect(), await connect()
    await fill(staying)
    for number in range(FILTERS):
        leaving.send(11, filtered(number))
        staying.send(11, filtered(FILTERS + number, queueOffset=0))
    await leaving.close()
    last = staying.send(11, pull_ext("T"))
    assert (await staying.answer(last)).code == ResponseCode.SUCCESS
    assert all(lane.running == 0 for lane in broker.rocketmq.lanes.by_name.values())


def test_a_cache_that_nobody_renews_compiles_all_at_once() -> None:
    cache = FilterCache(turn_chars_max=1)
    assert [cache.get(f"a = {n}").expression for n in range(3)] == ["a = 0", "a = 1", "a = 2"]


def test_what_is_kept_costs_nothing_of_the_turn() -> None:
    began = list[int]()
    cache = FilterCache(lambda: began.append(1), turn_chars_max=12)
    for _ in range(3):
        cache.get("a = 1")
        cache.get("a = 2")
    with pytest.raises(FilterPendingError):
        cache.get("a = 3")
    assert began == [1]
    cache.renew()
    cache.get("a = 3")
    assert began == [1, 1]
