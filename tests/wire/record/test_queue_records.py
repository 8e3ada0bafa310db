"""Records of one queue, verified in one call: what a reader is about to be given."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.records import HOST
from imago_testing.records import NOW_MS as NOW
from imago_testing.twins import Twin

BASE = 1 << 40
FIRST = 7
TOPIC = "Aufträge".encode()


def build(twin: Twin, bodies: list[bytes], *, dual: bool = True) -> bytes:
    tail = twin.QueueTail(TOPIC, 3, dual=dual, next_offset=FIRST)
    entries = [
        twin.make_entry(tail, body, b"TAGS\x01t\x02", born_ms=1, born_host=HOST) for body in bodies
    ]
    data, _ = twin.RecordBuilder(HOST, 1, 0).build(entries, 0, BASE, NOW, 1 << 30)
    return bytes(data)


def test_records_of_the_queue(twin: Twin) -> None:
    bodies = [b"first", b"", b"x" * 300]
    data = build(twin, bodies)
    ask = partial(twin.queue_records, data)
    assert ask(BASE, TOPIC, 3, FIRST) == len(data)
    assert ask(BASE, TOPIC, 3, FIRST, verify=False) == len(data)
    assert ask(BASE + 1, TOPIC, 3, FIRST) == 0
    assert ask(BASE, TOPIC[:-1], 3, FIRST) == 0
    assert ask(BASE, b"", 3, FIRST) == 0
    assert ask(BASE, TOPIC, 2, FIRST) == 0
    assert ask(BASE, TOPIC, 3, FIRST + 1) == 0
    first = len(build(twin, bodies[:1]))
    assert twin.queue_records(data[:-1], BASE, TOPIC, 3, FIRST) < len(data) - 1
    assert twin.queue_records(data[first:], BASE + first, TOPIC, 3, FIRST + 1) == len(data) - first
    assert twin.queue_records(memoryview(data), BASE, TOPIC, 3, FIRST) == len(data)
    assert twin.queue_records(b"", BASE, TOPIC, 3, FIRST) == 0


def test_every_flipped_bit_is_noticed(twin: Twin) -> None:
    data = bytearray(build(twin, [b"first", b"second" * 5]))
    first = len(build(twin, [b"first"]))
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            good = twin.queue_records(data, BASE, TOPIC, 3, FIRST)
            assert good == (0 if at < first else first)
            data[at] ^= 1 << bit


@given(
    bodies=st.lists(st.binary(max_size=60), max_size=6),
    dual=st.booleans(),
    cut=st.integers(0, 300),
    flips=st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 7)), max_size=2),
    asked=st.tuples(st.integers(-1, 1), st.integers(2, 3), st.integers(6, 8)),
    verify=st.booleans(),
)
@settings(deadline=None)
def test_twins_agree(
    bodies: list[bytes],
    dual: bool,
    cut: int,
    flips: list[tuple[int, int]],
    asked: tuple[int, int, int],
    verify: bool,
) -> None:
    data = bytearray(build(Twin("python"), bodies, dual=dual))
    del data[max(0, len(data) - cut) :]
    for at, bit in flips:
        if at < len(data):
            data[at] ^= 1 << bit
    found: list[Any] = [
        Twin(kind).queue_records(
            bytes(data), BASE + asked[0], TOPIC, asked[1], asked[2], verify=verify
        )
        for kind in ("python", "compiled")
    ]
    assert found[0] == found[1]
