"""Records of one queue, verified in one call: what a reader is about to be given."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.records import HOST
from imago_testing.frames.records import NOW_MS as NOW
from imago_testing.frames.twins import Twin
from imago_wire.record_format.layout import UNIT

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


def units_of(twin: Twin, queue: int, count: int) -> tuple[bytes, bytes]:
    """Return records of two queues that take turns in the log, and the units of one of them."""
    tails = [twin.QueueTail(TOPIC, n, dual=False, next_offset=FIRST) for n in (3, 4)]
    entries = [
        twin.make_entry(tails[n % 2], b"%d" % n * (n + 1), born_ms=1, born_host=HOST)
        for n in range(2 * count)
    ]
    data, _ = twin.RecordBuilder(HOST, 1, 0).build(entries, 0, BASE, NOW, 1 << 30)
    return bytes(data), bytes(tails[queue - 3].units)


def test_records_of_units_are_gathered_as_far_as_the_window_has_them(twin: Twin) -> None:
    data, units = units_of(twin, 3, 4)
    rows = list(UNIT.iter_unpack(units))
    records = [data[place - BASE : place - BASE + size] for place, size, _ in rows]
    ask = partial(twin.gather_records, topic=TOPIC, queue_id=3, offset=FIRST)
    assert ask(data, BASE, units, 0) == (b"".join(records), 4)
    assert ask(memoryview(data), BASE, units, 2) == (b"".join(records[2:]), 4)
    assert ask(data, BASE, units, 4) == (b"", 4)
    begin = rows[1][0] - BASE
    assert ask(data[begin:], BASE + begin, units, 0) == (b"", 0)
    assert ask(data[begin:], BASE + begin, units, 1) == (b"".join(records[1:]), 4)
    end = rows[2][0] + rows[2][1] - BASE
    assert ask(data[:end], BASE, units, 0) == (b"".join(records[:3]), 3)
    assert ask(data[: end - 1], BASE, units, 0) == (b"".join(records[:2]), 2)
    assert twin.gather_records(data, BASE, units, 0, TOPIC, 3, FIRST + 1) == (b"", 0)
    assert twin.gather_records(data, BASE, units, 0, TOPIC, 4, FIRST) == (b"", 0)


def test_records_of_units_are_gathered_out_of_blocks(twin: Twin) -> None:
    data, units = units_of(twin, 3, 4)
    rows = list(UNIT.iter_unpack(units))
    records = [data[place - BASE : place - BASE + size] for place, size, _ in rows]
    starts = [place for place, _, _ in rows]

    def ask(blocks: list[bytes], starts: list[int], first: int = 0) -> tuple[bytes, int]:
        found: tuple[bytes, int] = twin.gather_blocks(blocks, starts, units, first, TOPIC, 3, FIRST)
        return found

    assert ask(records, starts) == (b"".join(records), 4)
    assert ask(records, starts, 2) == (b"".join(records[2:]), 4)
    assert ask([data], [BASE]) == (b"".join(records), 4)
    assert ask(records[1:], starts[1:]) == (b"", 0), "the first one is not there"
    assert ask([records[0], b"", *records[2:]], starts) == (records[0], 1), "it was let go"
    assert ask([*records[:2], records[2][:-1]], starts[:3]) == (b"".join(records[:2]), 2)
    assert ask([], []) == (b"", 0)


@given(
    changes=st.lists(
        st.tuples(st.booleans(), st.integers(0, 1200), st.integers(0, 255)), max_size=3
    ),
    part=st.tuples(st.integers(0, 300), st.integers(0, 300)),
    shift=st.sampled_from([0, 0, 1, -1, 1 << 62, -(1 << 62)]),
    first=st.integers(0, 5),
    verify=st.booleans(),
    bytes_max=st.sampled_from([0, 1, 150, 350, 1 << 40]),
)
@settings(deadline=None)
def test_twins_gather_alike(
    changes: list[tuple[bool, int, int]],
    part: tuple[int, int],
    shift: int,
    first: int,
    verify: bool,
    bytes_max: int,
) -> None:
    data, units = map(bytearray, units_of(Twin("python"), 3, 4))
    for in_units, at, value in changes:
        changed = units if in_units else data
        changed[at % len(changed)] = value
    window = bytes(data[part[0] : len(data) - part[1]])
    at = BASE + part[0] + shift
    twins = [Twin("python"), Twin("compiled")]
    found = [
        twin.gather_records(window, at, bytes(units), first, TOPIC, 3, FIRST, verify=verify)
        for twin in twins
    ]
    assert found[0] == found[1]
    half = len(window) // 2
    blocks, starts = [window[:half], window[half + shift % 2 :]], [at, at + half + shift % 2]
    held = [
        twin.gather_blocks(blocks, starts, bytes(units), first, TOPIC, 3, FIRST) for twin in twins
    ]
    assert held[0] == held[1]
    fitting = [twin.fitting_units(bytes(units), bytes_max) for twin in twins]
    assert fitting[0] == fitting[1]


def test_units_that_one_read_takes(twin: Twin) -> None:
    units = b"".join(UNIT.pack(0, size, 0) for size in (100, 200, 300, -1, 5))
    assert twin.fitting_units(units, 1000) == (3, 600)
    assert twin.fitting_units(units, 600) == (3, 600)
    assert twin.fitting_units(units, 599) == (2, 300)
    assert twin.fitting_units(units, 1) == (1, 100)
    assert twin.fitting_units(units[3 * UNIT.size :], 1000) == (0, 0)
    assert twin.fitting_units(b"", 1000) == (0, 0)
