"""The fast path of acknowledgements: what it takes, and what it leaves to the slow path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.features.pop.pop_requests import unwritten
from imago_broker.processors.grpc.authentication import CallUsers
from imago_broker.processors.grpc.consuming import fast_path
from imago_broker.processors.grpc.consuming.fast_path import FastPath
from imago_broker.processors.grpc.consuming.plain_acks import PlainAcks
from imago_broker.processors.rocketmq.exchange import OK
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.peers.features import pop_of
from imago_testing.peers.sdk_calls import acknowledged, asks, message, named, received, sends
from imago_testing.virtual.clocks import ManualClock
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import encoded, make

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.sdk_peer import SdkPeer

CLIENT = ("", "client")
HANDLE = "0 1000 60000 0 0 shard-0 1 7 4096"


class Asked:
    """A call, and what it is told."""

    key, user, stream = CLIENT, "ann", SimpleNamespace(address="10.0.0.1")

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.framed = 0

    def send_framed(self, messages: bytes) -> None:
        self.framed += bool(messages)

    def answer(self, *, status: Any, entries: Any) -> None:
        self.codes += [status.code, *(each.status.code for each in entries)]


class Out:
    """What is out: acknowledges, and says later how that went."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.takes = True

    def acknowledge_now(self, group: str, topic: str, offsets: Any, done: Any) -> bool:
        if self.takes:
            self.taken.append((group, topic, offsets, done))
        return self.takes


class Rules:
    """Says whether this member serves changes."""

    why: str | None = None

    def refusal(self, _: Any) -> str | None:
        return self.why


class Shortly:
    """The fast path over parts that a test turns off one by one."""

    def __init__(self) -> None:
        self.lane = SimpleNamespace(running=0, full=False)
        self.rules, self.out = Rules(), Out()
        table: Any = SimpleNamespace(
            lanes={"client": self.lane}, watched=False, serving_rules=self.rules
        )
        self.table = table
        self.rights = SimpleNamespace(limited=False, allowed=True)
        self.outdated = SimpleNamespace(why="")
        access: Any = SimpleNamespace(
            outdated=self.outdated,
            quota_table=SimpleNamespace(limits=lambda *_: self.rights.limited),
            may=lambda *_: self.rights.allowed,
        )
        self.acks = PlainAcks(
            FastPath(CallUsers(access, enabled=True), table, "client"),
            self.out,
            ManualClock(epoch_ms=1000),
            broker_name="shard-0",
        )

    def take(self, topic: str = "plain") -> Asked | None:
        call: Any = Asked()
        request = make("AckMessageRequest", group=named("readers"), topic=named(topic))
        request.entries.add(message_id="01AA", receipt_handle=HANDLE)
        return call if self.acks.take(call, encoded(request)) else None


def test_what_counts_is_acknowledged_and_answered_once_it_is_written() -> None:
    short = Shortly()
    call = short.take()
    assert call is not None
    (group, topic, offsets, done), running = short.out.taken[0], short.lane.running
    assert (group, topic, offsets, running) == ("readers", "plain", {(1, 1000): [7]}, 1)
    assert (call.framed, call.codes) == (0, [])
    done(OK)
    assert (call.framed, call.codes, short.lane.running) == (1, [], 0)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.DISK_FULL, SdkCode.TOO_MANY_REQUESTS),
        (PutStatus.SLAVE_TIMEOUT, SdkCode.INTERNAL_SERVER_ERROR),
    ],
)
def test_what_was_not_written_is_refused(status: PutStatus, code: int) -> None:
    short = Shortly()
    call = short.take()
    assert call is not None
    short.out.taken[0][3](unwritten(status))
    assert (call.framed, call.codes, short.lane.running) == (0, [code, code], 0)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("table", "watched", True),
        ("lane", "full", True),
        ("rules", "why", "another leads"),
        ("rights", "limited", True),
        ("rights", "allowed", False),
        ("outdated", "why", "not in sync"),
        ("out", "takes", False),
    ],
)
def test_whatever_else_is_left_to_the_careful_way(part: str, name: str, value: Any) -> None:
    short = Shortly()
    setattr(getattr(short, part), name, value)
    assert short.take() is None
    assert (short.out.taken, short.lane.running) == ([], 0)


def test_no_more_names_are_kept_than_allowed() -> None:
    fast_path.named_needs.cache_clear()
    short = Shortly()
    for index in range(fast_path.NAMES_KEPT_MAX + 2):
        assert short.take(f"t{index}") is not None
    assert fast_path.named_needs.cache_info().currsize == fast_path.NAMES_KEPT_MAX
    assert short.take("a b") is None


async def test_a_whole_receive_is_acknowledged_at_once(broker: Broker, peer: SdkPeer) -> None:
    for index in range(5):
        await peer.call("SendMessage", sends(message(message_id=f"01A{index}")))
    got: list[Any] = []
    while len(got) < 5:
        got += (await received(peer, asks()))[1]
    pops = pop_of(broker).service
    assert pops.out == 5
    ack = await acknowledged(peer, *got)
    assert [each.status.code for each in ack.entries] == [SdkCode.OK] * 5
    assert [each.message_id for each in ack.entries] == [
        each.system_properties.message_id for each in got
    ]
    assert (pops.out, pops.counts.acknowledged, pops.counts.void) == (0, 5, 0)
    again = await acknowledged(peer, *got)
    assert [each.status.code for each in again.entries] == [SdkCode.OK] * 5
    assert (pops.counts.acknowledged, pops.counts.void) == (5, 5)
