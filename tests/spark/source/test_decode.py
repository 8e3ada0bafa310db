"""Rows decoded all at once, by both twins, held to the same records decoded one by one."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from imago_client import MessageQueue
from imago_spark.columns import decode
from imago_spark.columns.gather import CorruptBatchError
from imago_spark.columns.property_columns import read_properties
from imago_spark.schema import ALL, CORE, DEFAULT, arrow_schema
from imago_testing.frames.twins import load
from imago_wire.record_format import properties as names
from imago_wire.records.record import (
    Entry,
    QueueTail,
    RecordBuilder,
    decode_record,
    host_bytes,
    host_text,
    make_entry,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUE = MessageQueue("orders", "shard-0", 3)
V4, V6 = host_bytes("10.1.2.3", 5555), host_bytes("2001:db8::1", 5555)
END = 1 << 62


def build(
    entries: list[dict[str, Any]], *, topic: bytes = b"orders", dual: bool = True, store: bytes = V4
) -> bytes:
    """Return records as a broker stores them."""
    builder = RecordBuilder(store, 1, 0)
    tail = QueueTail(topic, 3, dual=dual, next_offset=100)
    made: list[Entry] = [
        make_entry(tail, **{"born_ms": 1_700_000_000_123, "born_host": V4, **entry})
        for entry in entries
    ]
    data, placed = builder.build(made, 0, 4096, 1_700_000_001_456, 1 << 30)
    assert len(placed) == len(entries)
    return data


def decoded(
    data: bytes, columns: Sequence[str] = ALL, *, end: int = END, **limits: Any
) -> list[pa.RecordBatch]:
    """Return what both twins make of the bytes: the same batches, or the same error."""
    found: list[list[pa.RecordBatch] | CorruptBatchError] = []
    for read_rows in (None, load("imago_spark.columns._rows_c").read_rows):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decode, "_read_rows", read_rows)
            try:
                found.append(
                    list(decode.decode_batches(data, QUEUE, columns, end_offset=end, **limits))
                )
            except CorruptBatchError as error:
                found.append(error)
    plain, compiled = found
    if isinstance(plain, CorruptBatchError):
        assert str(compiled) == str(plain)
        raise plain
    assert not isinstance(compiled, CorruptBatchError)
    for batch in (*plain, *compiled):
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(columns))
    assert [batch.to_pylist() for batch in compiled] == [batch.to_pylist() for batch in plain]
    return plain


def rows(data: bytes, columns: Sequence[str] = ALL, end: int = END) -> list[dict[str, Any]]:
    return [row for batch in decoded(data, columns, end=end) for row in batch.to_pylist()]


def expected(data: bytes) -> list[dict[str, Any]]:
    """Decode record by record, as the clients do."""
    found, at = [], 0
    while at < len(data):
        stored = decode_record(data, at, inflate=True)
        position = stored.properties.get(names.METAQ_POS)
        found.append(
            {
                "topic": "orders",
                "shard": "shard-0",
                "queue": 3,
                "offset": stored.queue_offset,
                "metaq_offset": None if position is None else int(position, 16),
                "key": stored.properties.get(names.KEYS),
                "tags": stored.tags,
                "value": stored.body,
                "flag": stored.flag,
                "sys_flag": stored.sys_flag,
                "born_time": _time(stored.born_ms),
                "store_time": _time(stored.store_ms),
                "born_host": host_text(stored.born_host),
                "msg_id": stored.unique_key or stored.offset_message_id,
                "reconsume_times": stored.reconsume_times,
                "body_crc": stored.body_crc,
                "properties": [
                    (name, value)
                    for name, value in stored.properties.items()
                    if name not in names.RESERVED
                ],
            }
        )
        at += stored.size
    return found


def _time(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def test_row_holds_every_field_of_its_record() -> None:
    properties = names.encode({"UNIQ_KEY": "ID", "KEYS": "a b", "TAGS": "t", "own": "ü"})
    data = build(
        [{"body": b"x\x01\x02", "properties": properties, "flag": 7, "reconsume_times": 2}]
    )
    (row,) = rows(data)
    assert (row["key"], row["tags"], row["value"]) == ("a b", "t", b"x\x01\x02")
    assert (row["offset"], row["metaq_offset"], row["flag"]) == (100, 0, 7)
    assert (row["msg_id"], row["reconsume_times"], row["born_host"]) == ("ID", 2, "10.1.2.3:5555")
    assert ("own", "ü") in row["properties"]
    assert [row] == expected(data)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01"),
        (-1, "1969-12-31"),
        (-62_135_596_800_000, "0001-01-01"),
        (-62_135_596_800_001, None),
        (253_402_300_799_999, "9999-12-31"),
        (253_402_300_800_000, None),
        ((1 << 63) // 1000, None),
        ((1 << 63) // 1000 + 1, None),
        ((1 << 63) - 1, None),
        (-(1 << 63), None),
    ],
)
def test_time_beyond_what_a_timestamp_can_be_is_null(ms: int, text: str | None) -> None:
    """A client sends what it likes as the time of birth; a copied log has its own store times."""
    around = {"body": b"", "born_ms": 1}
    data = bytearray(build([around, {"body": b"", "born_ms": ms}, around]))
    (first, second, third) = rows(bytes(data))
    assert first["born_time"] == third["born_time"] == _time(1)
    assert (second["born_time"] and f"{second['born_time'].date()}") == text
    at = int.from_bytes(data[:4], "big") + 56  # of the second record, behind its born host
    assert data[at - 8 : at] == V4
    data[at : at + 8] = ms.to_bytes(8, "big", signed=True)
    stored = rows(bytes(data))[1]["store_time"]
    assert (stored and f"{stored.date()}") == text


@pytest.mark.parametrize(
    "digits",
    ["8" + 15 * "0", 16 * "f", "-" + 15 * "1", " " + 15 * "1", "1_" + 14 * "1", "0x" + 14 * "1"],
)
@pytest.mark.parametrize("beside", [b"own\x01v\x02", b"lonely\x02"])
def test_position_that_is_no_number_of_a_log_is_null(digits: str, beside: bytes) -> None:
    """Properties come from messages of other brokers too."""
    strings = [beside + names.encode({names.METAQ_POS: one}) for one in (digits, 15 * "0" + "7")]
    found = read_properties(pa.array(strings, type=pa.binary()))
    assert found.metaq_offsets().to_pylist() == [None, 7]


def test_record_without_any_property_gets_the_brokers_id_and_nulls() -> None:
    data = build([{"body": b""}], dual=False)
    (row,) = rows(data)
    assert (row["key"], row["tags"], row["metaq_offset"], row["properties"]) == (
        None,
        None,
        None,
        [],
    )
    assert row["msg_id"] == "0A010203000015B3" + f"{4096:016X}"


@pytest.mark.parametrize(
    ("deflate", "bits"),
    [(zlib.compress, 0x001), (zlib.compress, 0x301), (lz4.frame.compress, 0x101),
     (zstandard.compress, 0x201)],
)  # fmt: skip
def test_compressed_bodies_are_inflated_in_place(deflate: Any, bits: int) -> None:
    plain = b"abc" * 1000
    entries = [
        {"body": b"before"},
        {"body": deflate(plain), "sys_flag": bits, "metaq_shape": (len(plain), 1)},
        {"body": b"after"},
    ]
    assert [row["value"] for row in rows(build(entries))] == [b"before", plain, b"after"]


def streamed(body: bytes) -> bytes:
    """A Zstandard frame that does not say how large it gets."""
    made = zstandard.ZstdCompressor().compressobj()
    return made.compress(body) + made.flush()


@pytest.mark.parametrize(
    ("deflate", "bits"),
    [(zlib.compress, 0x001), (lz4.frame.compress, 0x101), (zstandard.compress, 0x201),
     (streamed, 0x201)],
)  # fmt: skip
def test_bodies_that_grow_come_in_several_batches_and_bombs_without_a_value(
    deflate: Any, bits: int
) -> None:
    plain = [bytes([number]) * 1000 for number in range(7)]
    plain[3] = bytes(5000)
    entries = [{"body": deflate(body), "sys_flag": bits} for body in plain]
    entries.insert(5, {"body": b"not compressed"})
    entries.insert(6, {"body": b"neither, but says so", "sys_flag": bits})
    properties = [names.encode({"UNIQ_KEY": f"m{number}"}) for number in range(len(entries))]
    data = build(
        [entry | {"properties": one} for entry, one in zip(entries, properties, strict=True)],
        dual=False,
    )
    batches = decoded(data, inflated_bytes_max=2500)
    for batch in batches:
        values = batch.column("value").to_pylist()
        assert sum(len(value or b"") for value in values) <= 2500 + len(b"not compressed")
    found = [row for batch in batches for row in batch.to_pylist()]
    assert [row["msg_id"] for row in found] == [f"m{number}" for number in range(9)]
    wanted: list[bytes | None] = [*plain[:3], None, plain[4], b"not compressed", None, *plain[5:]]
    assert [row["value"] for row in found] == wanted


def test_addresses_of_both_kinds_may_be_mixed() -> None:
    entries = [{"body": b"1"}, {"body": b"2", "born_host": V6}, {"body": b"3"}]
    for store in (V4, V6):
        data = build(entries, store=store)
        assert rows(data) == expected(data)


def test_topic_of_more_than_127_bytes_is_read_past() -> None:
    data = build([{"body": b"1"}, {"body": b"22"}], topic=b"%RETRY%" + b"x" * 200)
    assert [row["value"] for row in rows(data)] == [b"1", b"22"]


def test_rows_from_the_end_offset_on_are_left_out() -> None:
    data = build([{"body": b"%d" % number} for number in range(5)])
    assert [row["offset"] for row in rows(data, end=103)] == [100, 101, 102]
    assert not decoded(data, CORE, end=100)


def test_core_columns_are_the_first_of_all() -> None:
    data = build([{"body": b"1", "properties": names.encode({"TAGS": "t"})}])
    (core,), (whole,) = rows(data, CORE), rows(data)
    whole.pop("properties")
    assert core == whole


@pytest.mark.parametrize(
    "odd",
    [b"lonely\x02", b"a\x01b\x01c\x02", b"\x02\x02", b"\x01v\x02", b"KEYS\x01\xff\xfe\x02",
     b"TAGS\x01\x02", b"KEYS\x01one\x02KEYS\x01two\x02", b"TAGS\x01no end"],
)  # fmt: skip
def test_odd_property_strings_read_as_one_by_one(odd: bytes) -> None:
    data = build(
        [{"body": b"1", "properties": odd}, {"body": b"2", "properties": b"TAGS\x01t\x02"}]
    )
    assert rows(data) == expected(data)


property_strings = st.dictionaries(
    st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "own", "longer-name"]),
    st.text("ab 0ü€", max_size=12),
).map(names.encode)
entries_lists = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(max_size=200),
            "properties": property_strings
            | st.binary(max_size=40).map(_harmless := lambda raw: raw),
            "flag": st.integers(-(1 << 31), (1 << 31) - 1),
            "born_ms": st.integers(0, 1 << 41),
            "born_host": st.sampled_from([V4, V6, host_bytes("127.0.0.1", 1)]),
            "reconsume_times": st.integers(0, 100),
        }
    ),
    min_size=1,
    max_size=20,
)


@given(entries_lists, st.booleans())
def test_rows_equal_the_records_decoded_one_by_one(
    entries: list[dict[str, Any]], dual: bool
) -> None:
    data = build(entries, dual=dual)
    assert rows(data) == expected(data)


def test_records_of_another_broker_may_have_no_properties_at_all() -> None:
    (first, second), kept = bodies_and_rows([{"body": b"one"}, {"body": b"two"}])
    bare = b"".join(without_properties(record) for record in (first, second))
    found = rows(bare)
    assert [row["value"] for row in found] == [row["value"] for row in kept]
    assert [row["properties"] for row in found] == [[], []]


def bodies_and_rows(entries: list[dict[str, Any]]) -> tuple[list[bytes], list[dict[str, Any]]]:
    """Return each record's bytes, and the rows of all."""
    data = build(entries)
    records, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        records.append(data[at : at + size])
        at += size
    return records, rows(data)


def without_properties(record: bytes) -> bytes:
    stored = decode_record(record)
    body_end = 88 + len(stored.body)
    head = record[4 : body_end + 1 + len(stored.topic)] + b"\x00\x00"
    return (4 + len(head)).to_bytes(4, "big") + head


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.data())
def test_cut_bytes_are_an_error_or_fewer_rows(bodies: list[bytes], data: st.DataObject) -> None:
    whole = build([{"body": body} for body in bodies])
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    try:
        found = rows(cut)
    except CorruptBatchError:
        return
    assert found == expected(whole)[: len(found)]


def test_negative_body_size_is_an_error() -> None:
    whole = bytearray(build([{"body": b"one"}, {"body": b"two"}]))
    whole[84] |= 0x80  # the body's size, behind the fixed fields and two IPv4 hosts
    with pytest.raises(CorruptBatchError, match="shorter than its body"):
        rows(bytes(whole))


@given(entries_lists, st.data())
def test_changed_byte_is_never_more_than_an_error(
    entries: list[dict[str, Any]], data: st.DataObject
) -> None:
    whole = bytearray(build(entries))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        decoded(bytes(whole))
    except CorruptBatchError:
        return


def test_any_columns_may_be_chosen_in_any_order() -> None:
    whole = build([{"body": b"1", "properties": names.encode({"KEYS": "k", "TAGS": "t"})}] * 3)
    full = rows(whole)
    for one in ALL:
        assert rows(whole, [one]) == [{one: row[one]} for row in full]
    for chosen in (DEFAULT, ("value", "offset"), ("offset", "tags", "topic", "key")):
        assert rows(whole, chosen) == [{one: row[one] for one in chosen} for row in full]
        assert list(rows(whole, chosen)[0]) == list(chosen)


@given(entries_lists, st.permutations(ALL).flatmap(lambda all_: st.integers(1, 17).map(
    lambda count: all_[:count])))  # fmt: skip
def test_chosen_columns_equal_those_of_all(
    entries: list[dict[str, Any]], chosen: list[str]
) -> None:
    data = build(entries)
    assert rows(data, chosen) == [{one: row[one] for one in chosen} for row in expected(data)]


def test_batches_end_at_so_many_rows_or_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = build([{"body": b"x" * 1000}] * 10)
    monkeypatch.setattr(decode, "BATCH_ROWS_MAX", 4)
    assert [batch.num_rows for batch in decoded(data)] == [4, 4, 2]
    assert [batch.num_rows for batch in decoded(data, end=105)] == [4, 1]
    monkeypatch.setattr(decode, "BATCH_ROWS_MAX", 100)
    monkeypatch.setattr(decode, "BATCH_BYTES_MAX", 3000)
    compiled = decode.decode_batches(data, QUEUE, ALL, end_offset=END)
    assert [batch.num_rows for batch in compiled] == [3, 3, 3, 1]


def test_damage_behind_a_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled pass yields what comes before, then the reference says what is wrong."""
    monkeypatch.setattr(decode, "BATCH_ROWS_MAX", 2)
    data = bytearray(build([{"body": b"x"}] * 6))
    size = int.from_bytes(data[:4], "big")
    data[4 * size + 84] |= 0x80
    with pytest.raises(CorruptBatchError, match="shorter than its body"):
        decoded(bytes(data))
    compiled = decode.decode_batches(bytes(data), QUEUE, ALL, end_offset=END)
    assert [next(compiled).num_rows, next(compiled).num_rows] == [2, 2]
    with pytest.raises(CorruptBatchError, match="shorter than its body"):
        next(compiled)


def test_log_offset_below_zero_is_for_the_reference() -> None:
    data = bytearray(build([{"body": b""}], dual=False))
    data[28] |= 0x80
    (row,) = rows(bytes(data))
    assert row["msg_id"].startswith("0A010203000015B3-")
