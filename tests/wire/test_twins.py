"""The compiled twins give the same results and the same errors as the reference, on anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.records import HOST, HOST_V6, sample_log
from imago_testing.frames.records import NOW_MS as NOW
from imago_testing.frames.text import bodies, commands, garbage_text, i32, i64
from imago_testing.frames.twins import Twin
from imago_testing.searching import examples
from imago_wire.crc import crc31
from imago_wire.text.encoder import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_wire.text.commands import Command

HOSTS = [HOST, HOST_V6]


class Outcome(NamedTuple):
    """What a call came to: a value, or the kind and text of an error."""

    value: Any = None
    error: str = ""


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Outcome:
    try:
        return Outcome(call(*arguments, **named))
    except Exception as error:
        return Outcome(None, f"{type(error).__name__}: {error}")


numbers = st.integers() | i64 | i32 | st.integers(-2, 2)
property_pieces = st.sampled_from(
    [
        b"\x01", b"\x02", b"\x02", b"TAGS", b"TAGS\x01a\x02", b"KEYS\x01k1 k2\x02", b"x", b"",
        b"__CRC32#", b"__METAQ_ID\x01", b"__METAQ_POS\x010\x02", b"__RMQ.TRANSIENT.x\x01y\x02",
        b"__SHARDINGKEY\x01s\x02", b"\xff", b"__", b"_", b"__UNIT_TAG\x01", b"UNIQ_KEY\x01U\x02",
        "TAGS\x01标签\x02".encode(), b"TAGS\x01\xff\xfe\x02", b" ", b"TAGS\x01\x02",
        b"__METAQ_LEN\x0100000001\x02__METAQ_CRC\x0100000001\x02",
        b"__METAQ_POS\x010000000000000001\x02__METAQ_ID\x010000000000000002\x02",
    ]
)  # fmt: skip
property_strings = st.lists(property_pieces, max_size=8).map(b"".join)
topics = st.sampled_from([b"t", "主题".encode(), b"T" * 127, b"T" * 128, b"%RETRY%g"])


class Plan(NamedTuple):
    """One message on its way to one of three queues."""

    queue: int
    metaq: bool
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    unit_tag: int | None
    shape: tuple[int, int] | None
    host: bytes


def attributed(attribute: bytes, payload: bytes) -> bytes:
    return len(attribute).to_bytes(4, "big") + attribute + payload


metaq_bodies = bodies | st.builds(
    attributed, st.sampled_from([b"", b"tag", "标签".encode(), b"\xff", b"a\x01", b"\x02"]), bodies
)
plans = st.builds(
    Plan,
    st.integers(0, 2),
    st.booleans(),
    metaq_bodies,
    property_strings,
    i32,
    st.sampled_from([0, 0, 0, 1, 0x301, 0x4, 0x8, 0xC, 0xD, 0x30, -1]) | i32,
    st.none() | i64,
    st.none() | st.tuples(st.integers(0, 1000), st.integers(0, (1 << 31) - 1)),
    st.sampled_from(HOSTS),
)


def made(twin: Twin, tails: list[Any], plan: Plan) -> Outcome:
    tail = tails[plan.queue]
    if plan.metaq:
        return outcome(
            twin.metaq_entry, tail, plan.body, plan.flag, -1, NOW, plan.host, plan.unit_tag
        )
    return outcome(
        twin.make_entry, tail, plan.body, plan.properties, flag=plan.flag, sys_flag=plan.sys_flag,
        born_ms=NOW, born_host=plan.host, unit_tag=plan.unit_tag, metaq_shape=plan.shape,
    )  # fmt: skip


def built(twin: Twin, topic: bytes, plan: list[Plan], rooms: list[int]) -> list[Any]:
    """Run the plan; return all that can be seen of it."""
    tails = [
        twin.QueueTail(topic, 0, dual=True, next_offset=1 << 40, next_position=5),
        twin.QueueTail(topic, 1, dual=True),
        twin.QueueTail(topic, 2, dual=False),
    ]
    seen: list[Any] = []
    entries = []
    for outcome_ in (made(twin, tails, item) for item in plan):
        if outcome_.error:
            seen.append(outcome_.error)
        else:
            entries.append(outcome_.value)
            seen.append(outcome_.value[1:])
    builder = twin.RecordBuilder(HOSTS[len(plan) % 2], 3, NOW)
    start, offset = 0, 1 << 33
    for room in [*rooms, 1 << 30]:
        data, placed = builder.build(entries, start, offset, NOW + room % 2, room)
        seen += [data, placed, outcome(builder.take_id, NOW - room).error, builder.last_metaq_id]
        start, offset = start + len(placed), offset + len(data)
    seen += [(tail.next_offset, tail.next_position, tail.units, tail.positions) for tail in tails]
    return [*seen, builder.last_metaq_id]


@given(
    topic=topics,
    plan=st.lists(plans, max_size=6),
    rooms=st.lists(st.integers(-10, 1000), max_size=3),
)
def test_records_are_built_alike(
    reference: Twin, compiled: Twin, topic: bytes, plan: list[Plan], rooms: list[int]
) -> None:
    expected = built(reference, topic, plan, rooms)
    assert built(compiled, topic, plan, rooms) == expected


@settings(max_examples=examples(300))
@given(
    pieces=st.lists(property_pieces, min_size=2, max_size=6),
    dual=st.booleans(),
    start=st.booleans(),
)
def test_property_strings_are_taken_alike(
    reference: Twin, compiled: Twin, pieces: list[bytes], dual: bool, start: bool
) -> None:
    properties = (b"" if start else b"KEYS\x01a\x02") + b"".join(pieces)

    def stored(twin: Twin) -> tuple[bytes, bytearray, bytearray, Any, bytes]:
        tail = twin.QueueTail(b"t", 0, dual=dual)
        entry = twin.make_entry(tail, b"body", properties, born_ms=1, born_host=HOST)
        data, _ = twin.RecordBuilder(HOST, 1, 0).build([entry], 0, 0, NOW, 1 << 20)
        seen = twin.scan_records(data, 0), twin.key_entries(data, 0)
        return (data, tail.units, tail.positions, *seen)

    assert stored(compiled) == stored(reference)


@given(
    dual=st.booleans(),
    body=bodies,
    properties=bodies,
    born_host=st.binary(max_size=21) | st.sampled_from(HOSTS),
    shape=st.none() | st.tuples(numbers, numbers),
    fields=st.fixed_dictionaries(
        dict.fromkeys(("flag", "sys_flag", "born_ms", "reconsume_times"), numbers)
        | {"prepared_offset": numbers, "unit_tag": st.none() | numbers}
    ),
)
def test_entries_are_checked_alike(
    reference: Twin,
    compiled: Twin,
    dual: bool,
    body: bytes,
    properties: bytes,
    born_host: bytes,
    shape: tuple[int, int] | None,
    fields: dict[str, Any],
) -> None:
    outcomes = [
        outcome(
            lambda twin=twin: twin.make_entry(
                twin.QueueTail(b"t", 0, dual=dual), body, properties, born_host=born_host,
                metaq_shape=shape, **fields,
            )[1:]
        )
        for twin in (reference, compiled)
    ]  # fmt: skip
    assert outcomes[0] == outcomes[1]


@given(
    body=metaq_bodies,
    flag=numbers,
    checksum=st.none() | numbers,
    born_ms=numbers,
    born_host=st.sampled_from([*HOSTS, b"short"]),
    metaq_id=st.none() | numbers,
)
def test_metaq_puts_are_checked_alike(
    reference: Twin,
    compiled: Twin,
    body: bytes,
    flag: int,
    checksum: int | None,
    born_ms: int,
    born_host: bytes,
    metaq_id: int | None,
) -> None:
    given_checksum = crc31(body) if checksum is None else checksum
    outcomes = [
        outcome(
            lambda twin=twin: twin.metaq_entry(
                twin.QueueTail(b"t", 0, dual=True), body, flag, given_checksum, born_ms, born_host,
                metaq_id,
            )[1:]
        )
        for twin in (reference, compiled)
    ]  # fmt: skip
    assert outcomes[0] == outcomes[1]


@given(
    topic=bodies,
    queue_id=numbers,
    store_host=bodies | st.sampled_from(HOSTS),
    broker_id=numbers,
    last_id=numbers,
    numbers=st.tuples(numbers, numbers, numbers, i64),
)
def test_identities_are_checked_alike(
    reference: Twin,
    compiled: Twin,
    topic: bytes,
    queue_id: int,
    store_host: bytes,
    broker_id: int,
    last_id: int,
    numbers: tuple[int, int, int, int],
) -> None:
    def tried(twin: Twin) -> list[Outcome]:
        tail = outcome(lambda: twin.QueueTail(topic, queue_id, dual=False).queue_id)
        builder = outcome(lambda: twin.RecordBuilder(store_host, broker_id, last_id).last_metaq_id)
        good = twin.RecordBuilder(HOSTS[0], 0, 0)
        return [tail, builder, outcome(good.build, [], *numbers)]

    assert tried(reference) == tried(compiled)


LOGS = {compressed: sample_log(compressed=compressed) for compressed in (False, True)}
STARTS = {
    compressed: [view.at for view in Twin("python").scan_records(data, 0).views]
    for compressed, data in LOGS.items()
}


@st.composite
def damaged_logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """A log with some bytes changed and its end cut, and a place in it where a record starts."""
    compressed = draw(st.booleans())
    data = bytearray(LOGS[compressed])
    start = draw(st.sampled_from(STARTS[compressed]))
    for _ in range(draw(st.integers(0, 4))):
        # Half of the changes go near a record's start, where the lengths are.
        near = st.integers(start, min(start + 130, len(data) - 1))
        at = draw(near | st.integers(0, len(data) - 1))
        data[at] = draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    cut = draw(st.none() | st.integers(start, len(data)))
    return bytes(data[:cut]), start


@given(damaged=damaged_logs(), verify=st.booleans(), offset=st.sampled_from([0, 1, 1 << 62]))
def test_damaged_logs_are_read_alike(
    reference: Twin, compiled: Twin, damaged: tuple[bytes, int], verify: bool, offset: int
) -> None:
    data, at = damaged

    def seen(twin: Twin) -> list[Any]:
        form = outcome(twin.metaq_form, data, at)
        if not form.error:
            form = Outcome((form.value[0], bytes(form.value[1])))
        return [
            outcome(twin.scan_records, data, 0, verify=verify),
            outcome(twin.scan_records, data[at:], at, verify=verify),
            outcome(twin.scan_records, data, offset, verify=verify),
            outcome(twin.view_record, data, at, verify=verify),
            outcome(twin.metaq_block, [memoryview(data)[at:], data]),
            outcome(twin.key_entries, data, offset),
            outcome(twin.key_entries, data[at:], offset),
            form,
        ]

    assert seen(compiled) == seen(reference)


@given(data=st.binary(max_size=200), at=st.integers(-5, 205))
def test_garbage_is_read_alike(reference: Twin, compiled: Twin, data: bytes, at: int) -> None:
    for name in ("view_record", "metaq_form"):
        expected = outcome(getattr(reference, name), data, at)
        assert outcome(getattr(compiled, name), data, at) == expected
    assert compiled.scan_records(data, 0) == reference.scan_records(data, 0)
    assert compiled.key_entries(data, 0) == reference.key_entries(data, 0)


@given(
    sent=st.lists(commands, max_size=4),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    cut=st.none() | st.integers(0, 200),
    line_max=st.sampled_from([4096, 30, 20]),
    body_max=st.sampled_from([1 << 20, 50, 0]),
)
def test_changed_commands_are_scanned_alike(
    reference: Twin,
    compiled: Twin,
    sent: list[Command],
    changes: list[tuple[int, int]],
    cut: int | None,
    line_max: int,
    body_max: int,
) -> None:
    data = bytearray(b"".join(map(encode, sent)))
    for at, value in changes:
        if at < len(data):
            data[at] = value
    read = bytes(data[:cut])
    assert compiled.scan_text(read, line_max, body_max) == reference.scan_text(
        read, line_max, body_max
    )


@given(data=garbage_text, line_max=st.integers(-1, 40), body_max=st.integers(-1, 12))
def test_garbage_is_scanned_alike(
    reference: Twin, compiled: Twin, data: bytes, line_max: int, body_max: int
) -> None:
    for read in (data, bytearray(data)):
        expected = outcome(reference.scan_text, read, line_max, body_max)
        assert outcome(compiled.scan_text, read, line_max, body_max) == expected


@given(
    messages=st.lists(
        st.tuples(bodies, st.lists(property_pieces, max_size=3).map(b"".join), numbers),
        max_size=4,
    ),
    born_ms=numbers,
    host=st.sampled_from([*HOSTS, b"", b"1234567"]),
)
def test_entries_of_several_messages_are_made_alike(
    reference: Twin,
    compiled: Twin,
    messages: list[tuple[bytes, bytes, int]],
    born_ms: int,
    host: bytes,
) -> None:
    def made(twin: Twin) -> list[Any]:
        tail = twin.QueueTail(b"topic", 0, dual=True)
        entries = twin.make_entries(tail, messages, born_ms, host)
        builder = twin.RecordBuilder(HOST, 1, 0)
        data, _ = builder.build(entries, 0, 0, NOW, 1 << 30)
        return [data, builder.with_properties, *(entry[1:] for entry in entries)]

    assert outcome(made, compiled) == outcome(made, reference)
