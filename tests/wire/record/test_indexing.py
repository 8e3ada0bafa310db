"""Units of whole records, without a view of each: what a follower makes of the leader's bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.records import HOST, sample_log
from imago_testing.frames.records import NOW_MS as NOW
from imago_testing.frames.twins import Twin
from imago_wire.records.record import ScanStop, blank_record, metaq_shape

if TYPE_CHECKING:
    from collections.abc import Callable

BASE = 1 << 40
META = b"IMAGO_META"

queues = st.tuples(
    st.sampled_from([b"a", b"b", b"long" * 40, "主题".encode(), META]), st.integers(0, 3)
)
properties = st.sampled_from(
    [b"", b"TAGS\x01blue\x02", "TAGS\x01标签\x02KEYS\x01k\x02".encode(), b"KEYS\x01k1 k2\x02x\x01y"]
)
records = st.tuples(
    queues, st.binary(max_size=80), properties, st.sampled_from([0, 4, 8, 12, 1 | 0x300]),
    st.none() | st.integers(-(1 << 40), 1 << 40),
)  # fmt: skip


class Queues:
    """Tails by topic and queue, made when they are asked for; topic `b` goes nowhere."""

    def __init__(self, twin: Twin, first: int = 0) -> None:
        self.twin, self.first = twin, first
        self.tails: dict[tuple[bytes, int], Any] = {}
        self.asked: list[tuple[bytes, int]] = []

    def tail(self, topic: bytes, queue_id: int) -> Any:
        key = topic, queue_id
        if key not in self.tails:
            self.tails[key] = self.twin.QueueTail(
                topic, queue_id, dual=topic != META and queue_id != 2, next_offset=self.first
            )
        return self.tails[key]

    def find(
        self, topic: bytes, queue_id: int, offset: int, place: int, position: int
    ) -> Any | None:
        assert place >= BASE
        assert isinstance(position, int)
        assert offset >= self.first
        self.asked.append((topic, queue_id))
        return None if topic == b"b" else self.tail(topic, queue_id)

    def ends(self) -> dict[tuple[bytes, int], tuple[int, int, bytes, bytes]]:
        return {
            key: (tail.next_offset, tail.next_position, bytes(tail.units), bytes(tail.positions))
            for key, tail in self.tails.items()
            if key[0] != b"b"
        }


def build(twin: Twin, found: list[Any]) -> tuple[bytes, Queues]:
    """Write the records as a leader does; return their bytes and its queues."""
    queues = Queues(twin)
    entries = []
    for (topic, queue_id), body, text, sys_flag, unit_tag in found:
        shape = metaq_shape(b"inflated", text) if sys_flag & 1 else None
        entries.append(
            twin.make_entry(
                queues.tail(topic, queue_id), body, text, sys_flag=sys_flag, born_ms=1,
                born_host=HOST, unit_tag=unit_tag, metaq_shape=shape,
            )
        )  # fmt: skip
    data, _ = twin.RecordBuilder(HOST, 1, 0).build(entries, 0, BASE, NOW, 1 << 30)
    return data, queues


def index_all(twin: Twin, data: bytes, queues: Queues) -> list[Any]:
    """Index everything, in as many calls as the stops at META ask for."""
    found = []
    at = 0
    while at < len(data):
        indexed = twin.index_records(memoryview(data)[at:], queues.find, META)
        found.append(tuple(indexed))
        at += indexed.end
        if indexed.reason:
            break
    return found


@given(found=st.lists(records, max_size=30), kind=st.sampled_from(["python", "compiled"]))
@settings(deadline=None)
def test_a_follower_has_the_units_of_its_leader(found: list[Any], kind: str) -> None:
    twin = Twin(kind)
    data, leader = build(twin, found)
    follower = Queues(twin)
    calls = index_all(twin, data, follower)
    assert not any(reason for *_, reason in calls)
    with_units = {key: end for key, end in leader.ends().items() if end[2]}
    assert follower.ends() == with_units
    assert len(calls) >= sum(topic == META for (topic, _), *_ in found)
    assert twin.whole_records(data, BASE) == (len(data), ScanStop.END, "")


@given(
    found=st.lists(records, max_size=20),
    cut=st.integers(0, 4000),
    flips=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 7)), max_size=2),
    tail=st.binary(max_size=20) | st.just(bytes(16)) | st.just(blank_record(77)),
)
@settings(deadline=None)
def test_twins_agree_on_any_bytes(
    found: list[Any], cut: int, flips: list[tuple[int, int]], tail: bytes
) -> None:
    data, _ = build(Twin("python"), found)
    broken = bytearray(data[: max(0, len(data) - cut)] + tail)
    for at, bit in flips:
        if at < len(broken):
            broken[at] ^= 1 << bit
    outcomes = []
    for kind in ("python", "compiled"):
        twin = Twin(kind)
        queues = Queues(twin)
        outcomes.append(
            (
                twin.whole_records(bytes(broken), BASE),
                twin.whole_records(bytes(broken), BASE, verify=False),
                outcome(partial(index_all, twin, bytes(broken), queues)),
                queues.ends(),
            )
        )
    assert outcomes[0] == outcomes[1]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except AssertionError as error:  # of `Queues.find`: a flipped bit has moved the record
        return type(error)


def test_a_record_that_does_not_follow_ends_it(twin: Twin) -> None:
    data, _ = build(twin, [((b"a", 0), b"x", b"", 0, None)] * 3)
    queues = Queues(twin)
    first = twin.index_records(data, queues.find, META)
    assert (first.end, first.reason) == (len(data), "")
    again = twin.index_records(data, queues.find, META)
    assert (again.end, again.reason) == (0, "queue offset 0 where 3 follows")
    assert queues.tail(b"a", 0).next_offset == 3


def test_a_record_without_position_does_not_go_to_a_dual_queue(twin: Twin) -> None:
    data, _ = build(twin, [((b"a", 2), b"x", b"", 0, None)])
    tail = twin.QueueTail(b"a", 2, dual=True)
    indexed = twin.index_records(data, lambda *_: tail, META)
    assert (indexed.end, indexed.reason, tail.next_offset) == (0, "no MetaQ position", 0)


def test_each_queue_is_asked_for_once(twin: Twin) -> None:
    data, _ = build(twin, [((topic, 0), b"", b"", 0, None) for topic in (b"a", b"b", b"a", b"b")])
    queues = Queues(twin)
    twin.index_records(data, queues.find, META)
    assert queues.asked == [(b"a", 0), (b"b", 0)]


def test_more_queues_than_are_remembered(twin: Twin) -> None:
    where = [(b"topic-%d" % (n * 7 % 600), n % 3) for n in range(1800)]
    data, leader = build(twin, [(key, b"", b"", 0, None) for key in where * 2])
    follower = Queues(twin)
    assert [call[0] for call in index_all(twin, data, follower)] == [len(data)]
    assert follower.ends() == leader.ends()


@pytest.mark.parametrize("compressed", [False, True])
def test_newest_time_and_id(twin: Twin, compressed: bool) -> None:
    data = sample_log(compressed=compressed)
    views = twin.scan_records(data, int.from_bytes(data[28:36], "big")).views
    indexed = twin.index_records(data, lambda *_: None, b"")
    assert indexed.store_ms == max(view.store_ms for view in views)
    assert indexed.metaq_id == max(view.metaq_id for view in views)
