"""Records to Arrow columns with NumPy, column by column: no Python object per row.

The reference of `_rows_c`, which says the same in one compiled pass; see `decode`.

The pulled bytes are the data buffer of an Arrow array whose elements are the parts of every record
(fixed fields, body, topic, properties, what follows them, fixed fields, …); `take` on every fifth
element is one copy in C++. Fixed fields are gathered by NumPy. Properties are split for all
records at once: names and values alternate, closed by the bytes 1 and 2, which occur nowhere else
in them.
"""

from __future__ import annotations

from functools import cached_property
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from imago_spark.columns.gather import CorruptBatchError, rows_at
from imago_spark.columns.hosts import host_column, stored_ids
from imago_spark.columns.property_columns import hexadecimal, read_properties
from imago_wire.record_format.layout import (
    CRC32_PREFIX,
    CRC32_SIZE,
    FIXED_SIZE_V4,
    MAGIC_V1,
    MAGIC_V2,
    METAQ_ID_PREFIX,
    METAQ_PLACE_SIZE,
    METAQ_POS_PREFIX,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_STORE_V6,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from imago_spark.columns.gather import Bytes, Longs
    from imago_spark.columns.property_columns import Properties

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
_YEAR_1_MS: Final = -62_135_596_800_000
_YEAR_9999_MS: Final = 253_402_300_799_999
"""The years 1 to 9999, as Spark's timestamps and Python's have them: a client may send any."""
_CRC_MASK: Final = 0x7FFF_FFFF
"""Both protocols' checksum of a body is CRC-32 without its highest bit."""
_RESERVED_END: Final = METAQ_PLACE_SIZE + CRC32_SIZE
_VALUE_END: Final = 2
_RESERVED: Final = np.frombuffer(
    METAQ_POS_PREFIX + bytes(16) + b"\x02" + METAQ_ID_PREFIX + bytes(16) + b"\x02"
    + CRC32_PREFIX + bytes(10) + b"\x02",
    dtype=np.uint8,
)  # fmt: skip
"""What Imago's brokers write last; 0 stands for the digits."""
_VALUES_AT: Final = np.flatnonzero(_RESERVED == 0)
_NAMES_AT: Final = np.flatnonzero(_RESERVED)


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


def read_batches(
    answer: bytes, at: int, end_offset: int, rows_max: int, columns: Collection[str]
) -> Iterator[tuple[int, dict[str, pa.Array], list[int]]]:
    """Yield the rows of the records from byte `at` on, up to `end_offset`, in batches.

    Each is the number of its rows, the wanted columns and which rows have a compressed body.
    """
    body = answer[at:]
    starts = np.array(record_starts(body), dtype=np.int64)
    data = np.frombuffer(body, dtype=np.uint8)
    head = rows_at(data, starts, _HEAD.itemsize).view(_HEAD).ravel()
    magic = head["magic"]
    if not ((magic == MAGIC_V1) | (magic == MAGIC_V2)).all():
        raise CorruptBatchError("a record begins with an unknown magic number")
    beyond = head["offset"] >= end_offset
    count = int(beyond.argmax()) if beyond.any() else len(starts)
    if not count:
        return
    rows = _Rows(body, data, starts[:count], head[:count])
    whole = {name: rows.column(name) for name in columns}
    compressed = np.flatnonzero(rows.sys_flag & SYS_COMPRESSED) if "value" in whole else starts[:0]
    for first in range(0, count, rows_max):
        inside = compressed[(compressed >= first) & (compressed < first + rows_max)] - first
        batch = {name: column.slice(first, rows_max) for name, column in whole.items()}
        yield min(rows_max, count - first), batch, inside.tolist()


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

        self._parts = self._cut()
        self._fifth = np.arange(self.count, dtype=np.int32) * 5
        self._made: dict[str, Callable[[], pa.Array]] = {
            "offset": lambda: pa.array(head["offset"].astype(np.int64)),
            "metaq_offset": self._metaq_offsets,
            "key": lambda: self._properties.text("KEYS"),
            "tags": lambda: self._properties.text("TAGS"),
            "value": lambda: self._parts.take(pa.array(self._fifth + 1)),
            "flag": lambda: pa.array(head["flag"].astype(np.int32)),
            "sys_flag": lambda: pa.array(self.sys_flag),
            "born_time": lambda: _timestamps(head["born_ms"]),
            "store_time": lambda: _timestamps(
                rows_at(data, self.store_ms_at, 8).view(">i8").ravel()
            ),
            "born_host": lambda: host_column(data, self.born_host_at, self.sys_flag & SYS_BORN_V6),
            "msg_id": self._message_ids,
            "reconsume_times": lambda: pa.array(self.tail["reconsume"].astype(np.int32)),
            "body_crc": lambda: pa.array(head["crc"].astype(np.int32)),
            "properties": self._maps,
            "crc_ok": self._checks,
        }

    def column(self, name: str) -> pa.Array:
        """Return one column; `value` holds the bodies as stored."""
        return self._made[name]()

    def _checks(self) -> pa.Array:
        """Return whether bodies match their checksums; compressed ones are not looked at."""
        borders = zip(self.body_at.tolist(), self.body_end.tolist(), strict=True)
        found = [crc32(self.body[start:end]) & _CRC_MASK for start, end in borders]
        matches = np.array(found, dtype=np.int64) == self.head["crc"]
        return pa.array(matches | ((self.sys_flag & SYS_COMPRESSED) != 0))

    @cached_property
    def _properties(self) -> Properties:
        return read_properties(self._parts.take(pa.array(self._fifth + 3)))

    def _maps(self) -> pa.Array:
        return self._properties.maps()

    def _metaq_offsets(self) -> pa.Array:
        return self._properties.metaq_offsets() if self.metaq_offset is None else self.metaq_offset

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
        rows = rows_at(self.data, cut, _RESERVED_END)
        values = rows[:, _VALUES_AT]
        if (rows[:, _NAMES_AT] != _RESERVED[_NAMES_AT]).any() or (values - np.uint8(1) < 2).any():
            return None
        numbers, are_numbers = hexadecimal(np.ascontiguousarray(values[:, :16]))
        before = np.maximum(cut - 1, self.properties_at)
        is_apart = (cut == self.properties_at) | (self.data[before] == _VALUE_END)
        if not (are_numbers & is_apart).all():
            return None
        self.properties_end = cut
        return pa.array(numbers)

    def _cut(self) -> pa.Array:
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

    def _message_ids(self) -> pa.Array:
        """Return the client's ids; where absent, the broker's, made of store host and offset."""
        given = self._properties.text("UNIQ_KEY")
        is_empty = pc.equal(given, "")
        if pc.any(is_empty).as_py():
            given = pc.if_else(is_empty, None, given)
        if not given.null_count:
            return given
        physical = np.ascontiguousarray(self.head["physical"])
        made = stored_ids(self.data, self.store_host_at, self.sys_flag & SYS_STORE_V6, physical)
        return pc.coalesce(given, made)


def _timestamps(milliseconds: Any) -> pa.Array:
    """Return times as a column, null where they lie beyond what a timestamp can be."""
    times = milliseconds.astype(np.int64)
    beyond = (times < _YEAR_1_MS) | (times > _YEAR_9999_MS)
    mask = beyond if beyond.any() else None
    return pa.array(times * 1000, mask=mask).cast(pa.timestamp("us", tz="UTC"))
