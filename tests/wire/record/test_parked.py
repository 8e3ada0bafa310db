"""Messages that waited: the twins make the same entries of them, and leave the same to others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.records import HOST, HOST_V6
from imago_testing.searching import examples
from imago_wire import _parked_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire import _parked_py as plain
from imago_wire.hot import QueueTail, RecordBuilder, make_entry
from imago_wire.layout import SYS_COMMIT, WAITING_PLACE

TAILS: list[Any] = [QueueTail(b"topic", n, dual=True) for n in range(2)]
NAMES = {"topic": [*TAILS, None], "tôpic": TAILS, "empty": []}
pieces = st.sampled_from(
    [
        b"REAL_TOPIC\x01topic\x02", "REAL_TOPIC\x01tôpic\x02".encode(), b"REAL_TOPIC\x01\xff\x02",
        b"REAL_TOPIC\x01other\x02", b"REAL_QID\x010\x02", b"REAL_QID\x011\x02",
        b"REAL_QID\x012\x02", b"REAL_QID\x013\x02", b"REAL_QID\x01-1\x02", b"REAL_QID\x01\x02",
        b"REAL_QID\x010000000001\x02", b"TRAN_MSG\x01true\x02", b"DELAY\x013\x02",
        b"TIMER_OUT_MS\x015\x02", b"IMAGO_SHAPE\x011, 2\x02", b"__IMAGO_SENT\x01x\x02",
        b"__SHARDINGKEY\x01s\x02", b"UNIQ_KEY\x01U\x02", b"\x02", b"y\x02",
        b"TRANSACTION_CHECK_TIMES\x011\x02", b"__METAQ_ID\x01\x02", b"TRAN_MSG\x02", b"K\x01v",
    ]
)  # fmt: skip
usual = st.just([b"UNIQ_KEY\x01U\x02", b"REAL_TOPIC\x01topic\x02", b"REAL_QID\x011\x02"])
properties = st.builds(
    lambda first, rest: b"".join(first + rest), usual | st.just([]), st.lists(pieces, max_size=4)
)
parked = st.tuples(
    properties,
    st.sampled_from([0, 0, 0, 1, 0x301, 4]),
    st.none() | st.integers(0, 20) | st.just(-5),
    st.sampled_from([HOST, HOST_V6]),
    st.sampled_from([b"", b"body"]),
)


def log_of(rows: list[Any], store_host: bytes) -> bytes:
    tail = QueueTail(b"parking", 5, dual=False, next_offset=70)
    entries = [
        make_entry(
            tail, body, text, flag=3, sys_flag=flag, born_ms=11, born_host=host, reconsume_times=2,
            unit_tag=tag,
        )
        for text, flag, tag, host, body in rows
    ]  # fmt: skip
    data, _ = RecordBuilder(store_host, 0, 0).build(entries, 0, 0, 1_795_258_220_883, 1 << 20)
    return bytes(data)


@settings(max_examples=examples(400))
@given(
    rows=st.lists(parked, max_size=4),
    store_host=st.sampled_from([HOST, HOST_V6]),
    changes=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), max_size=2),
    cut=st.none() | st.integers(0, 900),
    count_max=st.sampled_from([9, 9, 1, 0]),
    due_ms=st.integers(-10, 30),
)
def test_records_are_restored_alike(
    rows: list[Any],
    store_host: bytes,
    changes: list[tuple[int, int]],
    cut: int | None,
    count_max: int,
    due_ms: int,
) -> None:
    data = bytearray(log_of(rows, store_host))
    for place, value in changes:
        if place < len(data):
            data[place] = value
    found: list[Any] = []
    for twin in (plain, compiled):
        entries: list[Any] = []
        places = bytearray()
        at = twin.restore_records(
            bytes(data[:cut]), 0, count_max, due_ms, NAMES, 5, entries, places
        )
        found.append((at, entries, places))
    assert found[0] == found[1]


@settings(max_examples=examples(400))
@given(text=properties, flag=st.sampled_from([0, 0, 1]), host=st.sampled_from([HOST, HOST_V6]))
def test_half_messages_are_restored_alike(text: bytes, flag: int, host: bytes) -> None:
    half = make_entry(
        QueueTail(b"halves", 0, dual=False), b"body", text, flag=7, sys_flag=flag, born_ms=9,
        born_host=host, reconsume_times=1,
    )  # fmt: skip
    assert compiled.restore_half(half, 4711, NAMES) == plain.restore_half(half, 4711, NAMES)


@pytest.mark.parametrize("twin", [plain, compiled])
def test_records_that_are_due_become_messages_that_say_where_they_waited(twin: Any) -> None:
    text = b"UNIQ_KEY\x01U\x02DELAY\x013\x02REAL_TOPIC\x01topic\x02REAL_QID\x011\x02"
    data = log_of([(text, 0, due, HOST, b"b%d" % due) for due in (5, 6, 7)], HOST)
    entries: list[Any] = []
    places = bytearray()
    twin.restore_records(data, 0, 9, 6, NAMES, 5, entries, places)
    assert list(WAITING_PLACE.iter_unpack(places)) == [(5, 70), (5, 71)]
    assert entries == [
        make_entry(
            TAILS[1], b"b%d" % due, text + b"__IMAGO_TIMER\x015-%d\x02" % place, flag=3,
            born_ms=11, born_host=HOST, reconsume_times=2,
        )
        for due, place in zip((5, 6), (70, 71), strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("twin", [plain, compiled])
def test_half_message_becomes_what_was_sent(twin: Any) -> None:
    text = b"A\x01b\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02"
    text += b"REAL_TOPIC\x01topic\x02REAL_QID\x010\x02"
    tail = QueueTail(b"halves", 0, dual=False)
    half = make_entry(tail, b"body", text, flag=7, born_ms=9, born_host=HOST)
    assert twin.restore_half(half, 4711, NAMES) == make_entry(
        TAILS[0], b"body", b"A\x01b\x02PGROUP\x01g\x02", flag=7, sys_flag=SYS_COMMIT, born_ms=9,
        born_host=HOST, prepared_offset=4711,
    )  # fmt: skip
