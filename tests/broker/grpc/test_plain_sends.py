"""Ordinary sends go a fast path: what it takes is what the slow path would have stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.grpc import plain_sends
from imago_broker.processors.grpc.calls import Call
from imago_broker.processors.grpc.checks import check_message, type_of
from imago_broker.processors.grpc.message_forms import stored_properties
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.peers.sdk_calls import asks, message, received, sends
from imago_testing.searching import examples
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import MessageType, encoded, parse, timestamp
from imago_wire.grpc.scanning import twins
from imago_wire.record_format import properties as props

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.sdk_peer import SdkPeer

NOW_MS = 1_796_000_000_000
LIMITS = (64, 3, 60, 8)
texts = st.sampled_from(["", "a", "größe", " ", "a|b", "a\x01", "a\x85", "KEYS", "x" * 9])


@settings(max_examples=examples(300))
@given(
    texts, st.lists(texts, max_size=2), st.none() | texts,
    st.dictionaries(texts, texts, max_size=4), st.binary(max_size=70), texts,
)  # fmt: skip
def test_what_is_taken_passes_all_checks_and_is_stored_alike(
    tag: str,
    keys: list[str],
    group: str | None,
    properties: dict[str, str],
    body: bytes,
    message_id: str,
) -> None:
    made = message(tag=tag, keys=keys, properties=properties, body=body, message_id=message_id)
    if group is not None:
        made.system_properties.message_group = group
    made.system_properties.born_timestamp.CopyFrom(timestamp(NOW_MS))
    taken = twins.plain_send(encoded(sends(made)), b"peer:1", b"", LIMITS)
    if taken is None:
        return
    check_message(made, LIMITS[0], NOW_MS)
    assert props.decode(taken[3]) == stored_properties(made, "plain", "peer:1")
    assert type_of(made.system_properties) is (
        MessageType.NORMAL if group is None else MessageType.FIFO
    )
    assert (taken[1], taken[2].decode(), taken[4]) == (group or "", message_id, body)


async def test_both_ways_store_the_same(peer: SdkPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    made = message("ordered", tag="t", keys=["k"], message_group="g", properties={"a": "b"})
    quick = await peer.call("SendMessage", sends(made))
    monkeypatch.setattr(plain_sends, "plain_send", lambda *_: None)
    slow = await peer.call("SendMessage", sends(made))
    assert (quick.entries[0].offset, slow.entries[0].offset) == (0, 1)
    quick.entries[0].offset = 1
    assert quick == slow
    _, got = await received(peer, asks(topic="ordered"))
    for one in got:
        for name in ("receipt_handle", "queue_offset", "store_timestamp"):
            one.system_properties.ClearField(name)
    assert got[0] == got[1]


async def test_a_topic_that_is_made_anew_is_looked_at_again(broker: Broker, peer: SdkPeer) -> None:
    assert (await peer.call("SendMessage", sends(message()))).status.code == SdkCode.OK
    broker.topics.create_or_update(
        TopicConfig(
            name="plain", read_queues=2, write_queues=2, attributes={"message.type": "FIFO"}
        )
    )
    told = await peer.call("SendMessage", sends(message()))
    assert told.status.code == SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


class Told:
    """A call's way back that keeps what it is told, and where it came from."""

    peer, born_host, address, certificate_user, is_open = "peer:1", bytes(8), "peer", "", True

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def stored(self, message_id: bytes, offset: int) -> None:
        self.answers.append((message_id, offset))

    def send(self, messages: bytes, *, last: bool) -> None:
        assert last
        self.answers.append(parse("SendMessageResponse", messages[5:]).status.code)


class Puts:
    """Puts that are gathered, and end as a test says."""

    newest: Any = None

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def put(self, entries: list[Any], level: object, done: Any, token: object) -> None:
        assert level
        self.newest = entries
        self.jobs.append((entries, done, token))

    def end(self, status: PutStatus) -> None:
        self.newest, jobs, self.jobs = None, self.jobs, []
        for entries, done, token in jobs:
            placed = [(9, 0)] * len(entries) if status is PutStatus.OK else ()
            done(token, status, placed)


def path(broker: Broker, puts: Puts, running_max: int = 10) -> Any:
    lane = SimpleNamespace(running=0, running_max=running_max)
    table: Any = SimpleNamespace(lanes={"send": lane}, watched=False)
    users: Any = SimpleNamespace(grant=lambda *_: True)
    live: Any = SimpleNamespace(current=broker.config.rocketmq)
    messages: Any = puts
    handles = broker.topics.handles
    return plain_sends.PlainSends(users, table, messages, handles, live, "cluster"), lane


def taken(made: Any, body: bytes = b"body") -> Told:
    told = Told()
    call = Call(told, {"x-mq-client-id": "c"}, "SendMessageResponse")  # type: ignore[arg-type]
    assert made.take(call, encoded(sends(message(body=body))))
    return told


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.BUSY, SdkCode.TOO_MANY_REQUESTS),
        (PutStatus.NOT_WRITABLE, SdkCode.INTERNAL_SERVER_ERROR),
        (PutStatus.FLUSH_TIMEOUT, SdkCode.MASTER_PERSISTENCE_TIMEOUT),
        (PutStatus.SLAVE_UNAVAILABLE, SdkCode.HA_NOT_AVAILABLE),
        (PutStatus.TOO_LARGE, SdkCode.INTERNAL_SERVER_ERROR),
    ],
)
async def test_puts_that_fail_are_answered(
    broker: Broker, status: PutStatus, code: SdkCode
) -> None:
    puts = Puts()
    made, lane = path(broker, puts)
    told = taken(made)
    puts.end(status)
    assert (told.answers, lane.running) == ([code], 0)


async def test_of_a_turn_the_message_too_large_fails_alone(broker: Broker) -> None:
    puts = Puts()
    made, lane = path(broker, puts)
    first, second = taken(made), taken(made)
    assert len(puts.jobs) == 1
    puts.end(PutStatus.TOO_LARGE)
    assert (len(puts.jobs), lane.running) == (2, 2)
    puts.end(PutStatus.OK)
    assert (first.answers, second.answers, lane.running) == ([(b"01AA", 9)], [(b"01AA", 9)], 0)


async def test_no_more_are_taken_than_may_run(broker: Broker) -> None:
    made, _ = path(broker, Puts(), running_max=1)
    taken(made)
    call = Call(Told(), {}, "SendMessageResponse")  # type: ignore[arg-type]
    assert not made.take(call, encoded(sends(message())))
