"""A queue's records in MetaQ's form, by its units: both twins, every cut, every kind of damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_wire.compression import compress
from imago_wire.errors import RecordError
from imago_wire.record_format.layout import SYS_COMPRESSED, SYS_COMPRESSION_ZLIB, UNIT
from imago_wire.records.record import host_bytes, metaq_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_testing.frames.twins import Twin

HOST = host_bytes("10.0.0.5", 10911)
NOW = 1_800_000_000_000
PLACE = 7000


class Written:
    """Records of two queues by turns, and what queue 1 of them has in MetaQ's form."""

    def __init__(self, twin: Twin, messages: Sequence[tuple[bytes, bytes | None, bool]]) -> None:
        own, other = (twin.QueueTail(b"topic", n, dual=True) for n in (1, 2))
        entries = []
        for body, tag, compressed in messages:
            properties = b"" if tag is None else b"TAGS\x01" + tag + b"\x02"
            fields: dict[str, Any] = {}
            stored = body
            if compressed:
                stored = compress(body, SYS_COMPRESSION_ZLIB)
                flag = SYS_COMPRESSED | SYS_COMPRESSION_ZLIB
                fields = {"sys_flag": flag, "metaq_shape": metaq_shape(body, properties)}
            made = twin.make_entry(own, stored, properties, born_ms=1, born_host=HOST, **fields)
            entries += [made, twin.make_entry(other, b"other", b"", born_ms=1, born_host=HOST)]
        builder = twin.RecordBuilder(HOST, 1, 0)
        self.log, placed = builder.build(entries, 0, PLACE, NOW, 1 << 30)
        self.units = bytes(own.units)
        own_places = placed[::2]
        self.positions = [position for _, _, _, position, _ in own_places] + [own.next_position]
        at = [place - PLACE for _, place, _, _, _ in own_places]
        sizes = [size for _, _, size, _, _ in own_places]
        records = [self.log[a : a + n] for a, n in zip(at, sizes, strict=True)]
        self.records = list(zip(at, sizes, strict=True))
        self.forms = [twin.metaq_block([record]) for record in records]


def read(
    twin: Twin, written: Written, first: int = 0, bytes_max: int = 1 << 20, **changes: Any
) -> tuple[bytes, int, int]:
    given_ = {
        "window": written.log,
        "window_at": PLACE,
        "units": written.units,
        "offset": 0,
        "position": written.positions[first],
        "topic": b"topic",
        "queue_id": 1,
    } | changes
    found: tuple[bytes, int, int] = twin.metaq_records(
        given_["window"],
        given_["window_at"],
        given_["units"],
        first,
        given_["topic"],
        given_["queue_id"],
        given_["offset"],
        given_["position"],
        bytes_max,
        verify=changes.get("verify", True),
    )
    return found


bodies = st.binary(max_size=40)
tags = st.none() | st.binary(min_size=1, max_size=5).filter(lambda tag: not {1, 2} & set(tag))
messages = st.lists(st.tuples(bodies, tags, st.just(value=False)), min_size=1, max_size=6)


@given(messages=messages, data=st.data(), verify=st.booleans())
def test_every_cut_has_the_bytes_of_the_whole(
    twin: Twin, messages: Any, data: st.DataObject, *, verify: bool
) -> None:
    written = Written(twin, messages)
    first = data.draw(st.integers(0, len(messages) - 1))
    whole = b"".join(written.forms[first:])
    size = data.draw(st.integers(1, len(whole) + 3))
    found, behind, position = read(twin, written, first, size, verify=verify)
    assert found == whole[:size]
    assert position == written.positions[behind]
    assert written.positions[behind - 1] - written.positions[first] < size
    assert behind == len(messages) or position - written.positions[first] >= size


@given(messages=messages, data=st.data())
def test_a_window_that_ends_earlier_gives_what_lies_in_it(
    twin: Twin, messages: Any, data: st.DataObject
) -> None:
    written = Written(twin, messages)
    skipped = data.draw(st.integers(0, len(written.log)))
    end = data.draw(st.integers(skipped, len(written.log)))
    window = memoryview(written.log)[skipped:end]
    found, behind, _ = read(twin, written, window=window, window_at=PLACE + skipped)
    inside = 0
    for at, size in written.records:
        if at < skipped or at + size > end:
            break
        inside += 1
    assert (found, behind) == (b"".join(written.forms[:inside]), inside)


@given(messages=messages, data=st.data(), verify=st.booleans())
def test_both_twins_see_the_same_in_damaged_bytes(
    reference: Twin, compiled: Twin, messages: Any, data: st.DataObject, *, verify: bool
) -> None:
    written = Written(reference, messages)
    log, units = bytearray(written.log), bytearray(written.units)
    damaged = data.draw(st.sampled_from([log, units]))
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    size = data.draw(st.integers(1, 300))

    def outcome(twin: Twin) -> Any:
        try:
            return read(twin, written, 0, size, window=log, units=bytes(units), verify=verify)
        except RecordError as error:
            return str(error)

    expected = outcome(reference)
    assert outcome(compiled) == expected
    if verify and damaged is log:
        whole = b"".join(written.forms)
        assert whole.startswith(expected[0])


@pytest.mark.parametrize(
    "change",
    [
        {"topic": b"topik"},
        {"topic": b"topi"},
        {"queue_id": 2},
        {"offset": 1},
        {"position": 1},
        {"window_at": PLACE + 1},
        {"window_at": PLACE - 1},
        {"window_at": -(1 << 62)},
        {"window": b""},
    ],
)
def test_what_is_not_there_is_left_out(twin: Twin, change: dict[str, Any]) -> None:
    written = Written(twin, [(b"one", None, False), (b"two", b"t", False)])
    position = change.get("position", 0)
    assert read(twin, written, **change) == (b"", 0, position)


@pytest.mark.parametrize(
    "unit",
    [(-1, 200, 0), (PLACE, 0, 0), (PLACE, -5, 0), ((1 << 63) - 1, 9, 0), (PLACE, (1 << 31) - 1, 0)],
)
def test_units_of_nothing_lead_nowhere(twin: Twin, unit: tuple[int, int, int]) -> None:
    written = Written(twin, [(b"one", None, False)])
    assert read(twin, written, units=UNIT.pack(*unit)) == (b"", 0, 0)
    assert twin.near_units(UNIT.pack(*unit), 0, 1 << 20, 10) == (0, -1)


@given(messages=st.lists(st.tuples(bodies, tags, st.booleans()), min_size=1, max_size=6))
def test_bodies_that_are_compressed_come_inflated(twin: Twin, messages: Any) -> None:
    written = Written(twin, messages)
    found, at, position = b"", 0, 0
    while at < len(messages):
        part, behind, position = read(twin, written, at, position=position)
        assert behind > at
        found, at = found + part, behind
    assert found == b"".join(written.forms)


@given(
    rows=st.lists(st.tuples(st.integers(-5, 300), st.integers(-5, 60)), max_size=8),
    first=st.integers(0, 8),
    limit=st.integers(-5, 400),
    gap=st.integers(0, 50),
)
def test_near_units_are_found_alike(
    reference: Twin, compiled: Twin, rows: Any, first: int, limit: int, gap: int
) -> None:
    units = b"".join(UNIT.pack(place, size, 0) for place, size in rows)
    found = reference.near_units(units, first, limit, gap)
    assert compiled.near_units(units, first, limit, gap) == found
    assert first <= found[0] <= max(first, len(rows))
