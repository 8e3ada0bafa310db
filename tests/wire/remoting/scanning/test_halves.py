"""Passes over half messages: the twins do the same, and what they say they do."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.searching import examples
from imago_wire.records.record import make_entry
from imago_wire.records.record_twins import QueueTail, restore_half
from imago_wire.remoting.scanning import _ending_py as plain_ending
from imago_wire.remoting.scanning import _halves_py as plain
from imago_wire.remoting.scanning import _remoting_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire.remoting.scanning.halves import Half, kept_size


class How(Enum):
    """How one ends."""

    KEPT = "c"
    GONE = "r"


class Connection:
    """What reports that, known by itself."""


TAILS = [QueueTail(b"topic", queue, dual=False) for queue in range(3)]
NAMES = {"topic": TAILS[:2], "other": TAILS[2:]}
LEVELS: dict[QueueTail, object] = {TAILS[0]: "level", TAILS[1]: "level", TAILS[2]: "other level"}
HALVES = QueueTail(b"halves", 0, dual=False)
CONNECTIONS = [Connection(), Connection()]


def entry_of(topic: bytes, queue: int, body: bytes) -> Any:
    text = b"A\x01b\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (topic, queue)
    return make_entry(HALVES, body, text, born_ms=1, born_host=bytes(8))


entries = st.builds(
    entry_of,
    st.sampled_from([b"topic", b"topic", b"other", b"unknown"]),
    st.integers(0, 2),
    st.binary(max_size=20),
)
rows = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 5), st.integers(0, 2**63 - 2)),  # its offset
        st.sampled_from(["", "group", "group", "another"]),
        st.none() | entries,
        st.sampled_from(How),
        st.sampled_from([None, *CONNECTIONS]),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 1),
        st.booleans(),  # whether one-way
        st.booleans(),  # whether somebody waits
        st.booleans(),  # whether it is open
    ),
    max_size=8,
)


def halves_of(kind: Any, rows: list[Any]) -> tuple[list[Any], dict[int, Any]]:
    """Return half messages that are being ended, and those that are open."""
    halves, opened = [], {}
    for offset, group, entry, ending, asker, opaque, form, oneway, waits, is_open in rows:
        half = kind(offset, 4711, group)
        half.entry, half.ending, half.asker = entry, ending, asker
        half.opaque, half.form, half.oneway = opaque, form, oneway
        half.owner = "somebody" if oneway else ""
        half.waiting = [print] if waits else None
        halves.append(half)
        if is_open:
            opened[offset] = half
    return halves, opened


KINDS = ((plain, Half), (compiled, compiled.Half))


@settings(max_examples=examples(200))
@given(rows=rows)
def test_closing_and_answering_is_alike(rows: list[Any]) -> None:
    found = []
    for twin, kind in KINDS:
        halves, opened = halves_of(kind, rows)
        ended: dict[int, Any] = {}
        closed = twin.close_halves(halves, opened, ended)
        waiting = [halves.index(half) for half in closed.waiting]
        assert all(half.entry is None for half in halves)
        answers = twin.answer_ends(halves)
        assert all(half.asker is None for half in halves)
        found.append((closed._replace(waiting=waiting), ended, list(opened), answers))
    assert found[0] == found[1]


@settings(max_examples=examples(200))
@given(
    rows=rows,
    at=st.integers(0, 9),
    size=st.integers(0, 30),
    size_max=st.sampled_from([1, 30, 1000]),
    level=st.sampled_from(["level", "level", "other level"]),
)
def test_messages_and_marks_are_made_alike(
    rows: list[Any], at: int, size: int, size_max: int, level: str
) -> None:
    found = []
    for twin, kind in KINDS:
        halves, _ = halves_of(kind, rows)
        made: list[Any] = []
        end = twin.restore_halves(halves, at, size, size_max, How.KEPT, NAMES, LEVELS, level, made)
        found.append((end, made, twin.mark_texts(halves)))
    assert found[0] == found[1]


@settings(max_examples=examples(100))
@given(
    rows=st.lists(st.tuples(entries, st.sampled_from(["g", "h"]), st.booleans()), max_size=6),
    first=st.integers(0, 2**40),
    limited=st.booleans(),
)
def test_halves_are_opened_alike(rows: list[Any], first: int, limited: bool) -> None:
    placed = [(first + at, 1000 * at, 99, -1, -1) for at in range(len(rows))]
    asked = [(at, 0, 0, b"U%d" % at, False, b"") for at in range(len(rows))]
    noted = [(at, group, group) for at, (_, group, is_half) in enumerate(rows) if is_half]
    found = []
    for twin, _ in KINDS:
        opened: dict[int, Any] = {}
        kept: list[Any] = []
        brought = [entry for entry, _, _ in rows]
        size = twin.open_halves(noted, brought, placed, asked, 77, limited, opened, kept)
        assert list(opened.values()) == kept
        names = [name for name in Half.__slots__ if name != "entry"]
        fields = [[getattr(half, name) for name in names] for half in kept]
        found.append((size, list(opened), fields, [id(half.entry) for half in kept]))
    assert found[0] == found[1]
    assert found[0][0] == sum(kept_size(rows[at][0]) for at, _, _ in noted)


@pytest.mark.parametrize("twin", [plain, compiled])
def test_life_of_half_messages(twin: Any) -> None:
    brought = [entry_of(b"topic", 0, b"a"), entry_of(b"topic", 1, b"bb")]
    placed = [(7, 100, 99, -1, -1), (8, 200, 99, -1, -1)]
    asked = [(3, 0, 0, b"U", False, b""), (4, 0, 0, b"V", False, b"")]
    noted, opened, halves = [(0, "g", "o"), (1, "g", "o")], dict[int, Any](), list[Any]()
    twin.open_halves(noted, brought, placed, asked, 5, False, opened, halves)
    for half, opaque in zip(halves, (3, 4), strict=True):
        half.ending, half.asker, half.opaque = How.KEPT, CONNECTIONS[0], opaque
    made: list[Any] = []
    end = twin.restore_halves(halves, 0, 0, 1000, How.KEPT, NAMES, LEVELS, "level", made)
    assert end == (2, 3)
    assert made == [
        restore_half(entry, place, NAMES) for entry, place in zip(brought, (100, 200), strict=True)
    ]
    assert twin.mark_texts(halves) == (b"7,8,", b"cc")
    ended: dict[int, Any] = {}
    closed = twin.close_halves(halves, opened, ended)
    assert closed == ([("g", "o", 2)], [(How.KEPT, 2)], [], 2, sum(map(kept_size, brought)), 9)
    assert (opened, ended) == ({}, {7: How.KEPT, 8: How.KEPT})
    frames = plain_ending.answer_done(3, 0) + plain_ending.answer_done(4, 0)
    assert twin.answer_ends(halves) == [(CONNECTIONS[0], frames, 2)]
    assert twin.answer_ends(halves) == [], "each is answered once"


def test_messages_end_where_their_bytes_do() -> None:
    for twin, kind in KINDS:
        rows = [
            (at, "g", entry_of(b"topic", 0, b"12345"), How.KEPT, None, 0, 0, False, False, True)
            for at in range(4)
        ]
        halves, _ = halves_of(kind, rows)
        made: list[Any] = []
        args = (10, How.KEPT, NAMES, LEVELS, "level", made)
        assert twin.restore_halves(halves, 0, 0, *args) == (2, 10)
        assert twin.restore_halves(halves, 2, 6, *args) == (3, 11)
        assert len(made) == 3
