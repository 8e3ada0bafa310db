"""Messages that waited: the twins make the same entries of them, and leave the same to others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.records import HOST, HOST_V6
from imago_testing.searching import examples
from imago_wire.hot import QueueTail, RecordBuilder, make_entry
from imago_wire.record_format.entries import QueueTail as PlainTail
from imago_wire.record_format.layout import SYS_COMMIT, UNIT, WAITING_PLACE
from imago_wire.records import _parked_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire.records import _parked_py as plain
from imago_wire.records import _record_c as compiled_records  # type: ignore[attr-defined]  # the same
from imago_wire.records import _record_py as plain_records
from imago_wire.records.record import decode_record, scan_records

NOW_MS = 1_795_258_220_999
LONG = "t" * 130
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
        b"TAGS\x01red\x02", "TAGS\x01grün\x02".encode(), b"TAGS\x01\x02", b"TAGSX\x01x\x02",
        b"REAL_TOPIC\x01" + LONG.encode() + b"\x02", b"__RMQ.TRANSIENT.x\x01y\x02",
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


class Kind:
    """One kind of the twins, with queues of its own, and a builder for their records."""

    def __init__(self, restore_run: Any, tail: Any, builder: Any, store_host: bytes) -> None:
        self.restore_run = restore_run
        self.tails = [tail(b"topic", n, dual=dual) for n, dual in enumerate((True, False))]
        self.long = tail(LONG.encode(), 0, dual=True, next_offset=7, next_position=900)
        self.names = {
            "topic": [*self.tails, None], "tôpic": self.tails, "empty": [], LONG: [self.long],
        }  # fmt: skip
        self.builder = builder(store_host, 3, 0)

    def built(self, entries: list[Any], room: int = 1 << 20) -> Any:
        """Return records, their places, and what is known of the queues afterwards."""
        data, placed = self.builder.build(entries, 0, 5_000, NOW_MS, room)
        queues = [
            (each.next_offset, each.next_position, each.units, each.positions)
            for each in (*self.tails, self.long)
        ]
        return data, placed, queues, self.builder.last_metaq_id, self.builder.with_properties


def plain_kind(store_host: bytes) -> Kind:
    return Kind(plain.restore_run, PlainTail, plain_records.RecordBuilder, store_host)


def compiled_kind(store_host: bytes) -> Kind:
    module = compiled_records
    return Kind(module.restore_run, module.QueueTail, module.RecordBuilder, store_host)


KINDS = [plain_kind, compiled_kind]


@settings(max_examples=examples(400))
@given(
    rows=st.lists(parked, max_size=4),
    hosts=st.tuples(st.sampled_from([HOST, HOST_V6]), st.sampled_from([HOST, HOST_V6])),
    changes=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), max_size=2),
    cut=st.none() | st.integers(0, 900),
    count_max=st.sampled_from([9, 9, 1, 0]),
    due_ms=st.integers(-10, 30),
    room=st.sampled_from([1 << 20, 1 << 20, 300]),
)
def test_records_are_restored_and_built_alike(
    rows: list[Any],
    hosts: tuple[bytes, bytes],
    changes: list[tuple[int, int]],
    cut: int | None,
    count_max: int,
    due_ms: int,
    room: int,
) -> None:
    data = bytearray(log_of(rows, hosts[0]))
    for place, value in changes:
        if place < len(data):
            data[place] = value
    found: list[Any] = []
    for make in KINDS:
        kind = make(hosts[1])
        run = kind.restore_run(bytes(data[:cut]), 0, count_max, due_ms, kind.names, 5)
        if run is None:
            found.append(None)
            continue
        known = {(each.topic, each.queue_id) for each in run.tails}
        module = plain_records if make is plain_kind else compiled_records
        size_max = module.entries_size_max([run])
        found.append((run.count, run.end, run.places, known, size_max, kind.built([run], room)))
    assert found[0] == found[1]


@settings(max_examples=examples(200))
@given(rows=st.lists(parked, min_size=1, max_size=4), host=st.sampled_from([HOST, HOST_V6]))
def test_run_is_built_as_its_entries_are(rows: list[Any], host: bytes) -> None:
    data = log_of(rows, host)
    one, other = plain_kind(host), plain_kind(host)
    run = one.restore_run(data, 0, 9, 30, one.names, 5)
    if run is None:
        return
    entries = other.restore_run(data, 0, 9, 30, other.names, 5).entries
    alone = [(*entry[:-1], -1) for entry in entries]  # their checksums are computed again
    first, second = one.built([run]), other.built(alone)
    assert first[1] == [(second[1][0][0], 5_000, len(second[0]), -1, -1)]
    assert (first[0], *first[2:]) == (second[0], *second[2:])


@pytest.mark.parametrize("make", KINDS)
def test_run_that_does_not_fit_is_left_whole(make: Any) -> None:
    text = b"REAL_TOPIC\x01topic\x02REAL_QID\x010\x02"
    kind = make(HOST)
    run = kind.restore_run(log_of([(text, 0, 5, HOST, b"b")] * 2, HOST), 0, 9, 5, kind.names, 5)
    one = make_entry(QueueTail(b"other", 0, dual=False), b"", born_ms=0, born_host=HOST)
    entry = (kind.tails[1], *one[1:])
    size = len(kind.built([entry, run])[0])
    data, placed, *_ = kind.built([entry, run, entry], size + 7)
    assert len(placed) == 1
    assert kind.tails[0].next_offset == 2, "only the first time"
    _, placed, *_ = kind.built([entry, run, entry], size + 8)
    assert [place[1] for place in placed] == [5_000, 5_000 + len(data)]


@pytest.mark.parametrize("make", KINDS)
def test_run_of_a_dead_queue_has_no_size(make: Any) -> None:
    text = b"REAL_TOPIC\x01topic\x02REAL_QID\x011\x02"
    kind = make(HOST)
    run = kind.restore_run(log_of([(text, 0, 5, HOST, b"b")], HOST), 0, 9, 5, kind.names, 5)
    module = plain_records if make is plain_kind else compiled_records
    assert module.entries_size_max([run]) > 0
    kind.tails[1].next_offset = -1
    assert module.entries_size_max([run]) == -1


@settings(max_examples=examples(400))
@given(text=properties, flag=st.sampled_from([0, 0, 1]), host=st.sampled_from([HOST, HOST_V6]))
def test_half_messages_are_restored_alike(text: bytes, flag: int, host: bytes) -> None:
    half = make_entry(
        QueueTail(b"halves", 0, dual=False), b"body", text, flag=7, sys_flag=flag, born_ms=9,
        born_host=host, reconsume_times=1,
    )  # fmt: skip
    assert compiled.restore_half(half, 4711, NAMES) == plain.restore_half(half, 4711, NAMES)


@pytest.mark.parametrize("make", KINDS)
def test_records_that_are_due_become_messages_that_say_where_they_waited(make: Any) -> None:
    text = b"UNIQ_KEY\x01U\x02TAGS\x01red\x02DELAY\x013\x02REAL_TOPIC\x01topic\x02REAL_QID\x011\x02"
    data = log_of([(text, 0, due, HOST, b"b%d" % due) for due in (5, 6, 7)], HOST)
    kind = make(HOST_V6)
    run = kind.restore_run(data, 0, 9, 6, kind.names, 5)
    assert list(WAITING_PLACE.iter_unpack(run.places)) == [(5, 70), (5, 71)]
    assert (run.count, run.tails, run.end * 3) == (2, {kind.tails[1]}, len(data) * 2)
    made = kind.built([run])[0]
    assert [size for _, size, _ in UNIT.iter_unpack(kind.tails[1].units)] == [len(made) // 2] * 2
    expected = make_entry(
        QueueTail(b"topic", 1, dual=False), b"b6", text + b"__IMAGO_TIMER\x015-71\x02", flag=3,
        born_ms=11, born_host=HOST, reconsume_times=2,
    )  # fmt: skip
    second = scan_records(made, 5_000).views[1]
    builder = RecordBuilder(HOST_V6, 3, 0)
    expected[0].next_offset = 1
    whole, _ = builder.build([expected], 0, 5_000 + second.at, NOW_MS, 1 << 20)
    assert made[second.at :] == whole
    assert decode_record(made, second.at).tags == "red"


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
