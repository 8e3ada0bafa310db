"""POP with tiny limits, and with a disk that is full."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.features.pop import giving
from imago_broker.features.pop import popping as core_popping
from imago_broker.features.pop import reading as pop_reading
from imago_broker.features.pop import receipts as receipts_processor
from imago_broker.features.pop import service as popping
from imago_broker.features.pop import waiting as pop_waiting
from imago_log.errors import StoreError
from imago_log.reading import by_offset
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.features import pop_of
from imago_testing.peers.popping import acknowledge, bodies, committed, pop, pop_ext, receipts
from imago_wire.remoting.bodies.pop import ack_bits
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.app import Broker
    from imago_log.metadata.changes import Change
    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.remoting.command import RemotingCommand


@pytest.fixture(autouse=True)
async def topic(peer: RemotingPeer) -> None:
    for body in (b"a", b"b", b"c"):
        await peer.put("T", body)


TINY: dict[Any, dict[str, int]] = {
    popping: {"OUT_MAX": 3, "OUT_ALL_MAX": 5},
    pop_reading: {"_MOVES_MAX": 1},
    by_offset: {"FILTERED_UNITS_MAX": 2, "UNITS_AT_ONCE": 2},
    core_popping: {"_SLACK": 0},
    pop_waiting: {"WAITING_MAX": 2, "WAITING_PER_GROUP_MAX": 1},
}


@pytest.mark.parametrize("in_order", ["false", "true"])
async def test_everything_wanted_comes_with_every_limit_tiny(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch, in_order: str
) -> None:
    for module, limits in TINY.items():
        for name, value in limits.items():
            assert getattr(module, name) > value
            monkeypatch.setattr(module, name, value)
    wanted = await put_tagged(peer, 60)
    done: dict[str, list[bytes]] = {"g": [], "h": []}
    for group in [*done] * 200:
        how = {"consumerGroup": group, "exp": "x", "order": in_order, "maxMsgNums": 2}
        answer = await pop(peer, -1, **how)
        assert pop_of(broker).service.out <= 5
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            continue
        done[group] += bodies(answer)
        for receipt in reversed(receipts(answer)):
            said = await acknowledge(peer, receipt, consumerGroup=group)
            assert said.code == ResponseCode.SUCCESS
    for found in done.values():
        assert sorted(found) == sorted(wanted), "each came once"
    assert pop_of(broker).service.out == 0


async def test_one_group_does_not_take_all_that_may_be_out(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a week, if it likes: others have the last part."""
    for name, value in (("OUT_ALL_MAX", 16), ("SHARE", 4), ("FEW_MAX", 2)):
        monkeypatch.setattr(popping, name, value)
    for number in range(17):
        await peer.put("T", b"%d" % number)
    service = pop_of(broker).service

    def given(answer: RemotingCommand) -> int:
        return 0 if answer.code == ResponseCode.POLLING_TIMEOUT else len(bodies(answer))

    taken = [await pop(peer, maxMsgNums=5) for _ in range(4)]
    assert [given(answer) for answer in taken] == [5, 5, 2, 0]
    for group, count in (("few", 2), ("few", 0), ("other", 2)):
        answer = await pop(peer, consumerGroup=group, maxMsgNums=5)
        assert given(answer) == count, group
    assert service.out == 16
    for receipt in receipts(taken[0]):
        await acknowledge(peer, receipt)
    assert service.out == 11
    assert given(await pop(peer, maxMsgNums=5)) == 1, "the last part is left again"
    broker.offsets.forget_group("g")
    assert service.out == 4
    assert given(await pop(peer, consumerGroup="few", maxMsgNums=5)) == 5


async def test_a_batch_acknowledges_only_so_many_at_once(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one frame of them would take gigabytes, and the broker's time for seconds."""
    monkeypatch.setattr(receipts_processor, "BATCH_BITS_MAX", 16)
    stamp = int((await pop(peer)).ext["popTime"])

    async def batch(*groups: str) -> RemotingCommand:
        ack = {"t": "T", "q": 0, "r": "0", "rq": 0, "so": 0, "it": 1, "pt": stamp}
        acks = [{**ack, "c": group, "b": ack_bits(0, [0, 1])} for group in groups]
        body = json.dumps({"brokerName": "b", "acks": acks}).encode()
        return await peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, body)

    refused = await batch("g", "other", "third")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "BatchAck.b has 8 bits" in (refused.remark or "")
    assert await committed(peer) == 0, "all of it, or nothing"
    assert (await batch("other", "g")).code == ResponseCode.SUCCESS
    assert await committed(peer) == 2


async def put_tagged(peer: RemotingPeer, count: int) -> set[bytes]:
    """Put messages into two queues; return those that have the tag x."""
    wanted = set()
    for number in range(count):
        tag, body = "other" if number % 7 else "x", b"%d" % number
        await peer.put("T", body, queue_id=number % 2, properties=f"TAGS\x01{tag}\x02")
        if tag == "x":
            wanted.add(body)
    return wanted


async def test_what_could_not_be_written_is_not_given_and_is_there_at_once(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_meta, refusals = broker.store.put_meta, 2
    monkeypatch.setattr(popping, "RETRY_SECONDS", 0.01)

    def full_at_first(rows: Sequence[Change]) -> None:
        nonlocal refusals
        if refusals and any(kind == popping.KIND for kind, *_ in rows):
            refusals -= 1
            raise StoreError("no room")
        put_meta(rows)

    monkeypatch.setattr(broker.store, "put_meta", full_at_first)
    given = await pop(peer, invisibleTime=600_000)
    assert (given.code, given.body) == (ResponseCode.SYSTEM_BUSY, b"")
    await until(lambda: refusals == 0)  # it is tried again unasked
    given = await pop(peer, pollTime=30_000)
    assert bodies(given) == [b"a", b"b", b"c"]
    assert refusals == 0
    assert {message.reconsume_times for message in decode_messages(given.body)} == {0}
    for receipt in receipts(given):
        assert (await acknowledge(peer, receipt)).code == ResponseCode.SUCCESS
    assert await committed(peer) == 3


async def test_who_waits_gets_what_another_could_not_be_given(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_meta, is_full = broker.store.put_meta, True
    monkeypatch.setattr(popping, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(giving, "AGAIN_MS", 100)

    def full(rows: Sequence[Change]) -> None:
        if is_full and any(kind == popping.KIND for kind, *_ in rows):
            raise StoreError("no room")
        put_meta(rows)

    monkeypatch.setattr(broker.store, "put_meta", full)
    # In one turn: the second finds nothing, since the first has it all.
    asked = [
        peer.send(RequestCode.POP_MESSAGE, pop_ext(invisibleTime=600_000, pollTime=poll_ms))
        for poll_ms in (0, 30_000)
    ]
    assert (await peer.answer(asked[0])).code == ResponseCode.SYSTEM_BUSY
    is_full = False
    assert bodies(await peer.answer(asked[1])) == [b"a", b"b", b"c"]


async def test_repeated_acknowledgement_is_confirmed_once_it_is_written(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = receipts(await pop(peer))[0]

    def full(_: Sequence[Change]) -> None:
        raise StoreError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "put_meta", full)
        for _ in range(3):
            assert (await acknowledge(peer, receipt)).code == ResponseCode.SYSTEM_BUSY
    assert await committed(peer) == 0
    assert (await acknowledge(peer, receipt)).code == ResponseCode.SUCCESS
    assert await committed(peer) == 1
