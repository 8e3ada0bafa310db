"""What push consumers work on is kept for them, and given back when they are gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.features.pop import renewals
from imago_broker.features.pop.renewals import PushRenewals
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.grpc.consuming import plain_receives, receiving
from imago_broker.service.groups.clients import CLIENT_LIFE_MS
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers
from imago_testing.clusters.shard_pair import eventually
from imago_testing.peers.features import pop_of
from imago_testing.peers.sdk_calls import (
    acknowledged,
    asks,
    consumer,
    message,
    received,
    sends,
    telemetry,
)
from imago_testing.peers.sdk_peer import SdkPeer
from imago_testing.virtual.clocks import ManualClock
from imago_wire.grpc.codes import SdkCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.features.pop.service import Keeper, Queue

CLIENT = ("", "client")
QUEUE = ("group", "topic", 1)
GIVEN = 1000


class Out:
    """Notes until when messages are to be out."""

    def __init__(self) -> None:
        self.count = 1
        self.asked: list[int] = []
        self.before: list[tuple[Queue, int, Keeper]] = []

    def known(self, _: Queue) -> Any:
        return SimpleNamespace(state=SimpleNamespace(left=lambda _: self.count))

    def prolong(self, queue: Queue, stamp: int, due_ms: int, keeper: Keeper) -> int:
        assert (queue, stamp, keeper[:2]) == (QUEUE, GIVEN, CLIENT)
        if self.count:
            self.asked.append(due_ms)
        return self.count

    def kept(self) -> Iterator[tuple[Queue, int, Keeper]]:
        return iter(self.before)

    def out_until(self, *_: Any) -> None:
        pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(epoch_ms=1000)


@pytest.fixture
def out() -> Out:
    return Out()


@pytest.fixture
def kept(clock: ManualClock, out: Any) -> PushRenewals:
    made = PushRenewals(out, out, clock)
    made.only_for({CLIENT})
    made.add(CLIENT, [QUEUE], GIVEN, 61_000)
    return made


def test_nothing_is_kept_out_for_who_is_not_there(kept: PushRenewals, out: Out) -> None:
    """It never said what it is, or left while it waited for messages."""
    kept.only_for(())
    kept.gone(CLIENT)
    out.asked.clear()
    kept.add(CLIENT, [QUEUE], GIVEN, 61_000)
    assert len(kept) == 0
    kept.tick()
    assert out.asked == []


def test_nearly_over_is_prolonged_by_more_each_time(
    kept: PushRenewals, clock: ManualClock, out: Out
) -> None:
    kept.tick()
    assert out.asked == []
    clock.advance(60_000 - renewals.AHEAD_MS)
    kept.tick()
    kept.tick()
    assert out.asked == [clock.epoch_ms() + 60_000]
    clock.advance(60_000)
    kept.tick()
    assert out.asked[1:] == [clock.epoch_ms() + 180_000]


def test_nothing_is_kept_for_longer_than_three_hours(
    kept: PushRenewals, clock: ManualClock
) -> None:
    clock.advance(renewals.LONGEST_MS + 1)
    kept.tick()
    assert len(kept) == 0


def test_what_is_acknowledged_is_kept_no_more(
    kept: PushRenewals, clock: ManualClock, out: Out
) -> None:
    assert kept.count_of(CLIENT) == 1
    out.count = 0
    assert kept.count_of(CLIENT) == len(kept) == 0
    kept.add(CLIENT, [QUEUE], GIVEN, 61_000)
    clock.advance(60_000)
    kept.tick()
    assert (len(kept), out.asked) == (0, [])


def test_others_get_soon_what_a_client_had_that_is_gone(kept: PushRenewals, out: Out) -> None:
    kept.gone(("", "another"))
    assert out.asked == []
    kept.gone(CLIENT)
    assert out.asked == [1000 + renewals.LEFT_BEHIND_MS]
    assert len(kept) == 0


def test_no_more_is_kept_than_allowed(kept: PushRenewals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "HANDOUTS_MAX", 2)
    for stamp in (8, 9):
        kept.add(CLIENT, [QUEUE], stamp, 61_000)
    assert len(kept) == 2


def test_the_next_master_goes_on_and_gives_back_what_nobody_comes_for(
    clock: ManualClock, out: Any
) -> None:
    out.before.append((QUEUE, GIVEN, (*CLIENT, 900)))
    there: set[tuple[str, str]] = set()
    kept = PushRenewals(out, out, clock)
    kept.only_for(there)
    kept.start()
    kept.tick()
    assert out.asked == [1000 + 60_000]
    clock.advance(CLIENT_LIFE_MS)
    there.add(CLIENT)
    kept.tick()
    there.clear()
    clock.advance(1)
    kept.tick()
    assert out.asked[1:] == [1000 + CLIENT_LIFE_MS + 180_000, clock.epoch_ms() + 1000]
    assert len(kept) == 0
    kept.start()
    kept.stop()
    assert len(kept) == 0


def test_several_messages_of_one_queue_are_one_handout(kept: PushRenewals, out: Out) -> None:
    """One answer may have several messages of a lite topic, which names its queue so often."""
    kept.add(CLIENT, [QUEUE, QUEUE], GIVEN + 1, 61_000)
    assert len(kept) == 2
    out.count = 0
    kept.tick()
    assert len(kept) == 0


async def taken(peer: SdkPeer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have a push consumer take a message whose handle is over at once."""
    for each in (receiving, plain_receives):
        monkeypatch.setattr(each, "RENEWED_MS", 1)
    await telemetry(peer, consumer("readers", "plain", kind=2))
    sent = await peer.call("SendMessage", sends(message()))
    assert sent.status.code == SdkCode.OK
    _, (got,) = await received(peer, asks(auto_renew=True))
    return got


async def code_of(peer: SdkPeer, got: Any) -> int:
    found: int = (await acknowledged(peer, got)).status.code
    return found


async def test_an_acknowledgement_while_a_message_is_prolonged_counts(
    peer: SdkPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else has yet written that it is out for longer: its receipt counts all the same."""
    pop, held = pop_of(broker), list[Any]()
    got = await taken(peer, monkeypatch)
    when = broker.messages.acknowledgements.when_replicated
    monkeypatch.setattr(
        broker.messages.acknowledgements, "when_replicated", lambda *told: held.append(told)
    )
    pop.renewals.tick()
    pop.service.when_written(lambda _: None)
    await eventually(lambda: bool(held))
    monkeypatch.undo()
    assert await code_of(peer, got) == SdkCode.OK
    assert (pop.service.out, pop.service.counts.void) == (0, 0)
    for told in held:
        when(*told)
    assert await code_of(peer, got) == SdkCode.INVALID_RECEIPT_HANDLE, "it is done and over"


async def test_what_could_not_be_prolonged_safely_keeps_its_receipt(
    peer: SdkPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pop = pop_of(broker)
    got = await taken(peer, monkeypatch)
    with monkeypatch.context() as failing:
        failing.setattr(
            broker.messages.acknowledgements,
            "when_replicated",
            lambda tell, waiting: tell(waiting, PutStatus.SLAVE_TIMEOUT, ()),
        )
        pop.renewals.tick()
        assert await code_of(peer, got) == SdkCode.INTERNAL_SERVER_ERROR
    assert pop.service.out == 0
    assert (await received(peer, asks()))[1] == []


async def test_the_next_master_takes_a_receipt_and_keeps_what_is_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client works on it for longer than its handle says."""
    shard = ShardBrokers(tmp_path, "rocketmq.grpc_port=0")
    await shard.start(0, 1, 2)
    try:
        first = await shard.led()
        await shard.all_in_sync(0, 1, 2)
        broker = shard.brokers[first]
        broker.topics.create_or_update(TopicConfig(name="plain", read_queues=1, write_queues=1))
        peer = await SdkPeer.connect(broker.ports.grpc_port)
        got = await taken(peer, monkeypatch)
        pop_of(broker).renewals.tick()
        assert pop_of(broker).service.out == 1
        await peer.close()
        await shard.stop(first)
        second = shard.brokers[await shard.led(but=first)]
        pop = pop_of(second)
        await eventually(lambda: pop.service.ready and len(pop.renewals) == 1)
        pop.renewals.tick()
        peer = await SdkPeer.connect(second.ports.grpc_port)
        assert (await received(peer, asks()))[1] == [], "it is out"
        assert await code_of(peer, got) == SdkCode.OK
        assert (pop.service.out, list(second.store.meta("pop_keeper"))) == (0, [])
        await peer.close()
    finally:
        await shard.close()
