"""Light queues (LMQ) through restarts, limits and their end, over real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_broker.service.puts import light_queues
from imago_log.reading import by_reference
from imago_testing.peers.light import A, B, end_half, offsets, put
from imago_testing.peers.popping import bodies
from imago_testing.peers.remoting import RemotingPeer, pull_ext
from imago_testing.peers.transactions import COMMIT
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.config import BrokerConfig

    Connect = Callable[..., Awaitable[RemotingPeer]]


@pytest.fixture
def config(config: BrokerConfig) -> BrokerConfig:
    return replace(config, rocketmq=replace(config.rocketmq, light_queues=True))


async def test_light_queues_survive_a_restart(config: BrokerConfig) -> None:
    for start in range(2):
        broker = Broker(config)
        await broker.start()
        try:
            peer = await RemotingPeer.connect(broker.rocketmq_port)
            await put(peer, b"%d" % start)
            found = await peer.messages(A)
            assert offsets(found) == [f"{at},{at}" for at in range(start + 1)]
            await peer.close()
        finally:
            await broker.stop()


async def arrived(peer: RemotingPeer, count: int) -> list[bytes]:
    """Return what is in a light queue once it has so many messages."""
    found: list[bytes] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            opaque = peer.send(11, pull_ext(A, len(found), sysFlag=6))
            found += bodies(await peer.answer(opaque))
    return found


async def test_what_had_waited_is_delivered_once_whatever_restarts(config: BrokerConfig) -> None:
    """The last of each kind: a start looks whether it stands behind what says that it was."""
    wanted: set[bytes] = set()
    waited = {b"level": "DELAY\x011\x02", b"timer 0": "TIMER_DELAY_MS\x01300\x02"}
    for start in range(3):
        broker = Broker(config)
        await broker.start()
        try:
            peer = await RemotingPeer.connect(broker.rocketmq_port)
            if not start:
                for body, extra in waited.items():
                    await put(peer, body, A, extra=extra)
                half = await put(
                    peer, b"half", A, extra="TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
                )
                await end_half(peer, half, COMMIT)
                wanted = {b"half", *waited}
            else:
                wanted.add(b"timer %d" % start)
                extra = "TIMER_DELAY_MS\x01300\x02"
                await put(peer, b"timer %d" % start, A, extra=extra)
            found = await arrived(peer, len(wanted))
            assert sorted(found) == sorted(wanted)
            stored = [message.body for message in await peer.messages("T")]
            assert sorted(stored) == sorted(wanted)
            await peer.close()
        finally:
            await broker.stop(clean=start == 1)


async def commit(peer: RemotingPeer, name: str, offset: int) -> None:
    ext = {"consumerGroup": "g", "topic": name, "queueId": 0, "commitOffset": offset}
    answer = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
    assert answer.code == ResponseCode.SUCCESS


async def test_positions_are_kept_up_to_the_end_of_queues_that_are_there(
    peer: RemotingPeer, broker: Broker
) -> None:
    offsets_of = broker.core.offsets
    await put(peer, b"x", A)
    await commit(peer, A, 1)
    assert offsets_of.query("g", A, 0) == 1
    await commit(peer, A, 10)  # of the queue that it was before
    assert offsets_of.query("g", A, 0) == 1
    await commit(peer, B, 5)
    assert offsets_of.query("g", B, 0) is None
    await put(peer, b"y", B)
    assert [message.body for message in await peer.messages(B)] == [b"y"]


async def test_queues_that_one_message_names_are_made_together_or_not_at_all(
    peer: RemotingPeer, broker: Broker
) -> None:
    light = broker.core.messages.light
    light.queues_max = 2
    await peer.put("T", b"the topic is there")
    end = broker.store.log_end
    refused = await put(peer, b"x", f"{A},{B},%LMQ%c")
    assert "LMQ_CONSUME_QUEUE_NUM_EXCEEDED" in (refused.remark or "")
    assert (len(light), broker.store.log_end) == (0, end)
    assert (await put(peer, b"x", f"{A},{B},{A}")).code == ResponseCode.SUCCESS
    assert len(light) == 2


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_read_follows_some_references_and_the_reader_goes_on(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    monkeypatch.setattr(by_reference, "REFERENCES_MAX", 3)
    for number in range(8):
        await put(peer, b"%d" % number, A)
    if deleted:
        await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    found, at, reads = 0, 0, 0
    while at < 8:
        answer = await peer.pull(A, at)
        found += len(decode_messages(answer.body)) if answer.body else 0
        at, before, reads = int(answer.ext["nextBeginOffset"]), at, reads + 1
        assert 0 < at - before <= 3
    assert (found, reads) == (0 if deleted else 8, 3)


@pytest.mark.parametrize("looks", [1, 500])
async def test_light_queues_without_messages_go_some_at_a_time(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    monkeypatch.setattr(light_queues, "LOOKS_MAX", looks)
    light, store = broker.core.messages.light, broker.store
    unseen = "%LMQ%unseen"
    await put(peer, b"x", f"{A},{B},%LMQ%c,{unseen}")
    await commit(peer, A, 1)
    # A new master lets nobody see what is not confirmed to it yet.
    ranges = {A: (1, 1), B: (0, 1), "%LMQ%c": (1, 1), unseen: (0, 0)}
    monkeypatch.setattr(store, "queue_range", lambda topic, _: ranges.get(topic, (0, 0)))
    monkeypatch.setattr(type(store), "log_start", 1)
    for _ in range(4):
        broker.core.clean_up()
    assert (A in light, B in light, "%LMQ%c" in light) == (False, True, False)
    assert unseen in light
    assert broker.core.offsets.query("g", A, 0) is None
    monkeypatch.undo()
    await put(peer, b"y")
    assert [message.body for message in await peer.messages(A)] == [b"y"]
    assert [message.body for message in await peer.messages(B)] == [b"x", b"y"]


async def test_who_waits_in_a_light_queue_that_goes_begins_anew(
    peer: RemotingPeer, connect: Connect
) -> None:
    await put(peer, b"x", A)
    opaque = peer.send(11, pull_ext(A, 1, sysFlag=6))
    other = await connect()
    await other.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": A})
    answer = await peer.answer(opaque)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


async def test_delayed_message_to_a_light_queue_makes_it_again(peer: RemotingPeer) -> None:
    sent = await peer.put(A, b"direct", properties="DELAY\x011\x02")
    assert sent.code == ResponseCode.SUCCESS
    await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": A})
    waiting = pull_ext(A, sysFlag=6, suspendTimeoutMillis=20_000)
    assert bodies(await peer.call(11, waiting)) == [b"direct"]
