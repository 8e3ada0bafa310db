"""Pulled commit-log records to one Arrow batch, column by column: no Python object per row.

The pulled bytes are the data buffer of an Arrow array whose elements are the parts of every record
(fixed fields, body, topic, properties, what follows them, fixed fields, …); `take` on every fifth
element is one copy in C++. Fixed fields are gathered by NumPy. Properties are split for all
records at once: names and values alternate, closed by the bytes 1 and 2, which occur nowhere else
in them.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from imago_spark.gather import CorruptBatchError, rows_at
from imago_spark.hosts import host_column, stored_ids
from imago_spark.options import Columns
from imago_spark.property_columns import hexadecimal, read_properties
from imago_spark.schema import arrow_schema
from imago_wire.compression import inflate
from imago_wire.errors import ProtocolError
from imago_wire.layout import (
    CRC32_SIZE,
    FIXED_SIZE_V4,
    MAGIC_V1,
    MAGIC_V2,
    METAQ_PLACE_SIZE,
    METAQ_POS_PREFIX,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_STORE_V6,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_client.message_queue import MessageQueue
    from imago_spark.gather import Bytes, Longs
    from imago_spark.property_columns import Properties

INFLATED_BYTES_MAX: Final = 64 << 20
"""For all compressed bodies of one batch together; a body that alone takes more has no value."""

_SIZE: Final = Struct(">i")
_HEAD: Final = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("crc", ">i4"),
        ("queue", ">i4"),
        ("flag", ">i4"),
        ("offset", ">i8"),
        ("physical", ">i8"),
        ("sys_flag", ">i4"),
        ("born_ms", ">i8"),
    ]
)
_AFTER_STORE_HOST: Final = np.dtype(
    [("reconsume", ">i4"), ("prepared", ">i8"), ("body_size", ">i4")]
)
_V6_EXTRA: Final = 12
_RESERVED_END: Final = METAQ_PLACE_SIZE + CRC32_SIZE
_VALUE_END: Final = 2


def record_starts(body: bytes) -> list[int]:
    """Return where each record begins. CorruptBatchError: the sizes do not add up."""
    starts: list[int] = []
    begin, size_of, at, end = starts.append, _SIZE.unpack_from, 0, len(body)
    try:
        while at < end:
            begin(at)
            size = size_of(body, at)[0]
            if size < FIXED_SIZE_V4:
                break
            at += size
    except StructError as error:
        raise CorruptBatchError(f"{end - at} bytes at the end are no record") from error
    if at != end:
        raise CorruptBatchError(f"record at byte {starts[-1]} of {end} does not end in them")
    return starts


def decode_batches(
    body: bytes,
    queue: MessageQueue,
    columns: Columns,
    *,
    end_offset: int,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a pull's answer below `end_offset`.

    They form one batch, or several if inflated bodies exceed `inflated_bytes_max`.
    """
    starts = np.array(record_starts(body), dtype=np.int64)
    data = np.frombuffer(body, dtype=np.uint8)
    head = rows_at(data, starts, _HEAD.itemsize).view(_HEAD).ravel()
    magic = head["magic"]
    if not ((magic == MAGIC_V1) | (magic == MAGIC_V2)).all():
        raise CorruptBatchError("a record begins with an unknown magic number")
    offsets = head["offset"].astype(np.int64)
    count = int(np.searchsorted(offsets, end_offset))
    if count:
        rows = _Rows(body, data, starts[:count], head[:count])
        yield from rows.batches(queue, columns, inflated_bytes_max)


class _Rows:
    """The records of one answer, as arrays."""

    def __init__(self, body: bytes, data: Bytes, starts: Longs, head: Any) -> None:
        self.body, self.data, self.starts, self.head = body, data, starts, head
        self.count = len(starts)
        self.sys_flag = head["sys_flag"].astype(np.int32)
        born_v6 = (self.sys_flag & SYS_BORN_V6) // SYS_BORN_V6
        store_v6 = (self.sys_flag & SYS_STORE_V6) // SYS_STORE_V6
        self.born_host_at = starts + _HEAD.itemsize
        self.store_ms_at = self.born_host_at + 8 + _V6_EXTRA * born_v6
        self.store_host_at = self.store_ms_at + 8
        self.body_at = self.store_host_at + 8 + _V6_EXTRA * store_v6 + _AFTER_STORE_HOST.itemsize
        self.tail = (
            rows_at(data, self.body_at - _AFTER_STORE_HOST.itemsize, _AFTER_STORE_HOST.itemsize)
            .view(_AFTER_STORE_HOST)
            .ravel()
        )
        self.body_end = self.body_at + self.tail["body_size"].astype(np.int64)
        self.properties_at = self._properties_at()
        self.end = starts + head["size"].astype(np.int64)
        if not ((self.body_at <= self.body_end) & (self.properties_at <= self.end)).all():
            raise CorruptBatchError("a record is shorter than its body and topic")
        self.properties_end = self.end
        self.metaq_offset = self._cut_reserved()

    def batches(
        self, queue: MessageQueue, columns: Columns, inflated_bytes_max: int
    ) -> Iterator[pa.RecordBatch]:
        parts = self._parts()
        every_fifth = np.arange(self.count, dtype=np.int32) * 5
        properties = read_properties(parts.take(pa.array(every_fifth + 3)))
        born = self.head["born_ms"]
        stored = rows_at(self.data, self.store_ms_at, 8).view(">i8").ravel()
        bodies = parts.take(pa.array(every_fifth + 1))
        arrays = [
            _constant(queue.topic, self.count),
            _constant(queue.shard, self.count),
            pa.array(np.full(self.count, queue.queue_id, dtype=np.int32)),
            pa.array(self.head["offset"].astype(np.int64)),
            properties.metaq_offsets() if self.metaq_offset is None else self.metaq_offset,
            properties.text("KEYS"),
            properties.text("TAGS"),
            bodies,
            pa.array(self.head["flag"].astype(np.int32)),
            pa.array(self.sys_flag),
            _timestamps(born),
            _timestamps(stored),
            host_column(self.data, self.born_host_at, self.sys_flag & SYS_BORN_V6),
            self._message_ids(properties),
            pa.array(self.tail["reconsume"].astype(np.int32)),
            pa.array(self.head["crc"].astype(np.int32)),
        ]
        if columns is Columns.PROPERTIES:
            arrays.append(properties.maps())
        whole = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
        compressed = np.flatnonzero(self.sys_flag & SYS_COMPRESSED).tolist()
        if not compressed:
            yield whole
            return
        at, values = whole.schema.get_field_index("value"), bodies.to_pylist()
        for start, inflated in self._inflated(compressed, values, inflated_bytes_max):
            part = whole.slice(start, len(inflated))
            yield part.set_column(at, whole.schema.field(at), pa.array(inflated, pa.binary()))

    def _properties_at(self) -> Longs:
        """The topic's length takes one byte, two with the second magic; then the topic, a short."""
        if int(self.body_end.max()) + 2 > len(self.data) or (self.body_end < self.body_at).any():
            raise CorruptBatchError("a record is shorter than its body")
        long_topic = self.head["magic"] == MAGIC_V2
        first = self.data[self.body_end].astype(np.int64)
        second = self.data[self.body_end + 1].astype(np.int64)
        size = np.where(long_topic, first << 8 | second, first)
        found: Longs = self.body_end + np.where(long_topic, 2, 1) + size + 2
        return found

    def _cut_reserved(self) -> pa.Array | None:
        """Read the MetaQ positions and remove them from the properties, if all records have them.

        Imago's brokers write position, id and checksum last and at fixed width. None: some record
        ends otherwise, so these are properties like all others.
        """
        cut = self.end - _RESERVED_END
        if not (cut >= self.properties_at).all():
            return None
        rows = rows_at(self.data, cut, len(METAQ_POS_PREFIX) + 16)
        prefix = np.ascontiguousarray(rows[:, : len(METAQ_POS_PREFIX)])
        if not (prefix.view(f"S{len(METAQ_POS_PREFIX)}") == METAQ_POS_PREFIX).all():
            return None
        numbers, are_numbers = hexadecimal(rows[:, len(METAQ_POS_PREFIX) :])
        before = np.maximum(cut - 1, self.properties_at)
        is_apart = (cut == self.properties_at) | (self.data[before] == _VALUE_END)
        if not (are_numbers & is_apart).all():
            return None
        self.properties_end = cut
        return pa.array(numbers)

    def _parts(self) -> pa.Array:
        """Cut all records in five: fixed fields, body, topic, properties, and the rest."""
        borders = np.empty(5 * self.count + 1, dtype=np.int32)
        borders[0:-1:5] = self.starts
        borders[1::5] = self.body_at
        borders[2::5] = self.body_end
        borders[3::5] = self.properties_at
        borders[4::5] = self.properties_end
        borders[-1] = self.end[-1]
        return pa.Array.from_buffers(
            pa.binary(), 5 * self.count, [None, pa.py_buffer(borders), pa.py_buffer(self.body)]
        )

    def _inflated(
        self, compressed: list[int], values: list[bytes | None], bytes_max: int
    ) -> Iterator[tuple[int, list[bytes | None]]]:
        """Yield runs of rows, as first row and values, that fit this budget.

        A body that exceeds the budget alone, or contradicts its flags, has no value: its row stays.
        """
        start, room = 0, bytes_max
        for index in compressed:
            body = values[index]
            assert body is not None, "each body is inflated once"
            flags = int(self.sys_flag[index])
            value = _inflate(body, flags, room)
            if value is None and room < bytes_max:
                if index > start:
                    yield start, values[start:index]
                    values[start:index] = [None] * (index - start)
                start, room = index, bytes_max
                value = _inflate(body, flags, room)
            values[index] = value
            room -= len(value or b"")
        yield start, values[start:]

    def _message_ids(self, properties: Properties) -> pa.Array:
        """Return the client's ids; where absent, the broker's, made of store host and offset."""
        given = properties.text("UNIQ_KEY")
        is_empty = pc.equal(given, "")
        if pc.any(is_empty).as_py():
            given = pc.if_else(is_empty, None, given)
        if not given.null_count:
            return given
        physical = np.ascontiguousarray(self.head["physical"])
        made = stored_ids(self.data, self.store_host_at, self.sys_flag & SYS_STORE_V6, physical)
        return pc.coalesce(given, made)


def _inflate(body: bytes, sys_flag: int, room: int) -> bytes | None:
    try:
        return inflate(body, sys_flag, room)
    except ProtocolError:
        return None


def _timestamps(milliseconds: Any) -> pa.Array:
    micros = milliseconds.astype(np.int64) * 1000
    return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))


def _constant(text: str, count: int) -> pa.Array:
    return pa.repeat(text, count)
