"""The index of a file of the log in the bucket: what its consume queues had of it.

    magic "IMAGOTI1" | u32 size of the directory | u32 its CRC-32 | directory | units
    directory: JSON, a row a queue: [topic, queue, incarnation, first, end, at, position, to]
    units, at `at` of the object: 20 bytes a message, then 12 bytes a message where `position` ≥ 0

A queue that has no message in this file, but had in one before, has a row, too, whose `first` is
its `end`: so whoever looks for an offset can tell from any file whether it comes before or behind.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import orjson

from imago_log.commitlog.borders import is_blank
from imago_log.metadata.changes import META_TOPIC
from imago_wire.errors import WrongError
from imago_wire.hot import QueueTail, index_records, whole_records
from imago_wire.record_format.layout import POSITION_UNIT, UNIT
from imago_wire.record_format.references import LIGHT_PREFIX
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_log.commitlog.commit_log import CommitLog

MAGIC = b"IMAGOTI1"
HEADER_SIZE = len(MAGIC) + 8
_BETWEEN: Final = b'],["'
CHUNK_BYTES = 1 << 20
REST_S = 0.002
"""Between two chunks others are given the processor."""

Key = tuple[str, int]
"""Topic and queue id."""


class TierRow(NamedTuple):
    """What one file has of one queue: offsets first … end, and MetaQ positions where it is dual."""

    incarnation: int
    first: int
    end: int
    at: int
    position: int
    to: int

    @property
    def dual(self) -> bool:
        return self.position >= 0

    @property
    def positions_at(self) -> int:
        return self.at + (self.end - self.first) * UNIT.size


class BuiltIndex(NamedTuple):
    """An index, and what is to be said of the file that it is of."""

    data: bytes
    directory_size: int
    crc: int
    newest_ms: int


class TierRefusedError(Exception):
    """This file cannot go into the bucket: it stays here, and all behind it."""


@dataclass(slots=True)
class _Part:
    """What a file has of one queue, as it is gathered."""

    incarnation: int
    first: int
    dual: bool
    end: int
    units: bytearray = field(default_factory=bytearray)
    positions: bytearray = field(default_factory=bytearray)


def build_index(
    log: CommitLog,
    base: int,
    topics: Mapping[str, tuple[int, int]],
    before: Mapping[Key, TierRow],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> BuiltIndex:
    """Read a whole file of the log, verify it, and return its index. For a thread of its own.

    `topics`: incarnation and birth of each topic whose messages count; others are left out.
    `before`: the rows of the file before it. TierRefusedError: the file has damage.
    """
    parts: dict[Key, _Part] = {}
    checksum, at, end = 0, base, base + log.segment_size
    chunk, newest_ms = CHUNK_BYTES, 0
    while at < end:
        data = log.read(at, min(chunk, end - at))
        good, stop, reason = whole_records(data, at)
        if stop is ScanStop.BLANK and is_blank(log, at + good):
            newest_ms = max(newest_ms, _take(parts, data[:good], topics))
            checksum = _sum_rest(log, at, end, checksum)
            break
        if not good and stop is ScanStop.SHORT and len(data) < end - at:
            chunk *= 2  # a record that is larger
            continue
        if not good:
            raise TierRefusedError(f"log offset {at}: {reason or 'no whole record'}")
        newest_ms = max(newest_ms, _take(parts, data[:good], topics))
        checksum = crc32(data[:good], checksum)
        at, chunk = at + good, CHUNK_BYTES
        pause(REST_S)
    data, directory_size = _encode(parts, before, topics)
    return BuiltIndex(data, directory_size, checksum, newest_ms)


def _sum_rest(log: CommitLog, at: int, end: int, checksum: int) -> int:
    while at < end:
        data = log.read(at, min(CHUNK_BYTES, end - at))
        if not data:
            raise TierRefusedError(f"log offset {at}: the file ends here")
        checksum, at = crc32(data, checksum), at + len(data)
    return checksum


def _take(parts: dict[Key, _Part], data: bytes, topics: Mapping[str, tuple[int, int]]) -> int:
    """Add the units of whole records that follow one another; return the newest store time."""
    newest_ms = 0
    while data:
        tails: dict[tuple[bytes, int], tuple[int, QueueTail]] = {}

        def find(
            topic: bytes,
            queue_id: int,
            offset: int,
            _: int,
            position: int,
            tails: dict[tuple[bytes, int], tuple[int, QueueTail]] = tails,
        ) -> QueueTail:
            if known := tails.get((topic, queue_id)):
                return known[1]  # the compiled twin holds a few at a time, and asks again
            tail = QueueTail(topic, queue_id, dual=position >= 0, next_offset=offset)
            tails[topic, queue_id] = (offset, tail)
            return tail

        indexed = index_records(data, find, b"")
        for (topic, queue_id), (first, tail) in tails.items():
            _add(parts, topic.decode("utf-8", "replace"), queue_id, first, tail, topics)
        newest_ms = max(newest_ms, indexed.store_ms)
        if not indexed.reason:
            break
        if not indexed.end:  # not even one: the records are verified, so it is our mistake
            raise TierRefusedError(indexed.reason)
        data = data[indexed.end :]  # a topic was made again: its queues begin again
    return newest_ms


def _add(
    parts: dict[Key, _Part],
    topic: str,
    queue_id: int,
    first: int,
    tail: QueueTail,
    topics: Mapping[str, tuple[int, int]],
) -> None:
    found = topics.get(topic)
    if found is None or not tail.units or topic == META_TOPIC or topic.startswith(LIGHT_PREFIX):
        return
    incarnation, birth = found
    if UNIT.unpack_from(tail.units)[0] < birth:
        return  # of an earlier topic of that name: all of them, for the new one begins a new run
    part = parts.get((topic, queue_id))
    if part is None:
        part = parts[topic, queue_id] = _Part(incarnation, first, tail.dual, first)
    if part.end != first or part.dual is not tail.dual:
        raise TierRefusedError(f"{topic}/{queue_id}: offset {first} where {part.end} follows")
    part.units += tail.units
    part.positions += tail.positions
    part.end = tail.next_offset


def _encode(
    parts: Mapping[Key, _Part],
    before: Mapping[Key, TierRow],
    topics: Mapping[str, tuple[int, int]],
) -> tuple[bytes, int]:
    """Return the object, and the size of all that stands before its units."""
    rows: dict[Key, TierRow] = {}
    for key, row in before.items():
        if topics.get(key[0], (0, 0))[0] == row.incarnation:
            to = row.to if row.dual else -1
            rows[key] = TierRow(row.incarnation, row.end, row.end, 0, to, to)
    at, units = 0, list[bytes]()
    for key, part in parts.items():
        position = to = -1
        if part.dual:
            position = POSITION_UNIT.unpack_from(part.positions)[0]
            to = sum(POSITION_UNIT.unpack_from(part.positions, len(part.positions) - 12))
        rows[key] = TierRow(part.incarnation, part.first, part.end, at, position, to)
        units += [bytes(part.units), bytes(part.positions)]
        at += len(part.units) + len(part.positions)
    directory = orjson.dumps([[*key, *row] for key, row in sorted(rows.items())])
    head = MAGIC + len(directory).to_bytes(4, "big") + crc32(directory).to_bytes(4, "big")
    return b"".join([head, directory, *units]), HEADER_SIZE + len(directory)


class TierDirectory:
    """The rows of an index, whose units' places are now those in the object: one is read at a time.

    As objects, those of many queues would take ten times as much memory, and a second of time.
    """

    def __init__(self, data: bytes) -> None:
        """WrongError: these are not the first bytes of an index."""
        _check(data)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def get(self, key: Key) -> TierRow | None:
        """Return the row of a queue; None: there is none."""
        data, low, high = self._data, HEADER_SIZE + 1, len(self._data) - 1
        while low < high:
            # Rows are in the order of their keys, and no name has what is between two of them.
            at = data.rfind(_BETWEEN, low, (low + high) // 2)
            begin = low if at < 0 else at + 2
            end = data.index(b"]", begin) + 1
            topic, queue_id, *row = orjson.loads(data[begin:end])
            if (topic, queue_id) == key:
                return _row(row, len(data))
            if (topic, queue_id) < key:
                low = end + 1
            else:
                high = begin
        return None


def decode_directory(data: bytes) -> dict[Key, TierRow]:
    """Return all rows of an index at once. WrongError: these are not the first bytes of one."""
    _check(data)
    rows = orjson.loads(data[HEADER_SIZE:])
    return {(topic, queue): _row(row, len(data)) for topic, queue, *row in rows}


def _row(said: Sequence[Any], size: int) -> TierRow:
    incarnation, first, end, at, position, to = said
    return TierRow(incarnation, first, end, at + size, position, to)


def _check(data: bytes) -> None:
    size = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "big")
    said = int.from_bytes(data[len(MAGIC) + 4 : HEADER_SIZE], "big")
    directory = memoryview(data)[HEADER_SIZE:]
    if data[: len(MAGIC)] != MAGIC or len(directory) != size or crc32(directory) != said:
        raise WrongError("the index of a file in the tier is damaged")
