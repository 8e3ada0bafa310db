"""Reads by queue offset, log offset, time and key: look up units, then slices of the log.

Nothing here decodes a record but the look-up by key, which must compare the key itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.reading.by_properties import read_wanted
from imago_log.results import ReadResult, ReadStatus
from imago_log.views.units.lost import first_kept
from imago_log.views.units.unit_files import LOST_SIZE_FIELD
from imago_wire.errors import RecordError
from imago_wire.hot import fitting_units, view_record
from imago_wire.record_format import properties as names
from imago_wire.record_format.layout import UNIT
from imago_wire.records.record import key_hash

if TYPE_CHECKING:
    from imago_log.commitlog.damage import Damage
    from imago_log.commitlog.records import LogRecords, Run
    from imago_log.reading.by_properties import Wanted
    from imago_log.views.key_index import KeyIndex
    from imago_log.views.units.consume_queue import ConsumeQueue

FILTERED_UNITS_MAX = 800
"""Units that one filtered read inspects, as RocketMQ does, unless more messages are wanted."""
UNITS_AT_ONCE = 2048


def read_queue(
    queue: ConsumeQueue | None,
    records: LogRecords,
    bounds: tuple[int, int],
    offset: int,
    limits: tuple[int, int],
    tags: frozenset[int] | None,
    wanted: Wanted | None = None,
) -> ReadResult:
    """Read from one queue; `bounds` are its visible offsets, `limits` messages and bytes."""
    low, high = bounds
    if queue is None:
        return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    if high == 0:
        return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    if offset < low:
        return ReadResult(ReadStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset >= high:
        beyond = offset > high
        status = ReadStatus.OFFSET_OVERFLOW_BADLY if beyond else ReadStatus.OFFSET_OVERFLOW_ONE
        return ReadResult(status, high, low, high)
    if wanted is not None:
        return read_wanted(queue, records, bounds, offset, limits, wanted)
    if tags is None and not records.damage.may_lose:
        units = queue.units(offset, min(high - offset, max(limits[0], 1)))
        count, size = fitting_units(units, limits[1])
        body = records.gather(queue.tail, units[: count * UNIT.size], offset, size)
        if body:
            return ReadResult(ReadStatus.FOUND, offset + count, low, high, count, body)
    return _picked(queue, records, bounds, offset, limits, tags)


def _picked(
    queue: ConsumeQueue,
    records: LogRecords,
    bounds: tuple[int, int],
    offset: int,
    limits: tuple[int, int],
    tags: frozenset[int] | None,
) -> ReadResult:
    """Read from one queue unit by unit: some are not wanted, or may be lost."""
    low, high = bounds
    skipped = records.damage.skipped
    runs, count, end = _select(queue, records.damage, (offset, high), limits, tags)
    if not count:
        lost = records.damage.skipped > skipped
        # RocketMQ's name for a record that cannot be read: its clients go on behind it at once.
        status = ReadStatus.MESSAGE_WAS_REMOVING if lost else ReadStatus.NO_MATCHED_MESSAGE
        return ReadResult(status, end, low, high)
    return ReadResult(ReadStatus.FOUND, end, low, high, count, records.join(queue.tail, runs))


def _select(
    queue: ConsumeQueue,
    damage: Damage,
    bounds: tuple[int, int],
    limits: tuple[int, int],
    tags: frozenset[int] | None,
) -> tuple[list[Run], int, int]:
    """Return the runs of wanted records, how many they are, and the next offset.

    Lost messages are passed over.
    """
    offset, high = bounds
    messages_max, bytes_max = limits
    units_max = messages_max if tags is None else max(FILTERED_UNITS_MAX, messages_max)
    last = min(high, offset + max(units_max, 1))
    found: list[Run] = []
    total = 0
    while offset < last:
        units = queue.units(offset, min(last - offset, UNITS_AT_ONCE))
        for place, size, tag in UNIT.iter_unpack(units):
            if size == LOST_SIZE_FIELD or (damage.ranges and damage.at(place) is not None):
                if damage.may_heal(place):
                    last = offset  # the reader comes again
                    break
                damage.skip(place, 1)
                last = min(high, last + 1)
            elif tags is None or tag in tags:
                if found and (total + size > bytes_max or len(found) >= messages_max):
                    last = offset
                    break
                found.append((place, size, offset))
                total += size
            offset += 1
    return _joined(found), len(found), offset


def _joined(found: list[Run]) -> list[Run]:
    """Return the same with neighbours in the log and the queue as one."""
    runs: list[Run] = []
    end = following = -1
    for run in found:
        place, size, offset = run
        if (place, offset) == (end, following):
            first_place, first_size, first_offset = runs[-1]
            runs[-1] = (first_place, first_size + size, first_offset)
        else:
            runs.append(run)
        end, following = place + size, offset + 1
    return runs


def offset_by_time(
    queue: ConsumeQueue, records: LogRecords, bounds: tuple[int, int], ms: int, *, upper: bool
) -> int:
    """Return the first offset stored at or after `ms`; `upper`: the last at or before it.

    Clamped to the queue: with `upper` and nothing that old, the smallest offset.
    """
    low, high = bounds
    if low == high:
        return high

    def before(offset: int) -> bool:
        kept = first_kept(queue, records.damage, offset, high - 1)
        stored = records.store_ms(queue.unit(kept)[0], kept)
        return stored <= ms if upper else stored < ms

    found = queue.lookup.search(low, high, before)
    return max(low, found - 1) if upper else found


def find_key(
    index: KeyIndex,
    records: LogRecords,
    wanted: tuple[str, str],
    places: tuple[int, int],
    times: tuple[int, int],
    limits: tuple[int, int | None],
) -> list[bytes]:
    """Return the newest records of a (topic, key) stored within the times, oldest first.

    `places` bounds the log offsets that can be of those times, `limits` how many are returned and
    their bytes: at least one.
    """
    count_max, bytes_max = limits
    topic, key = (text.encode() for text in wanted)
    found: dict[int, bytes] = {}
    size = 0
    for place in index.candidates(key_hash(topic, key), *places):
        if place in found:
            continue
        stored_ms = records.glanced_ms(place)
        if stored_ms is None or not times[0] <= stored_ms <= times[1]:
            continue
        record = records.whole(place)
        if record is not None and _has_key(record, topic, key, times):
            size += len(record)
            if found and bytes_max is not None and size > bytes_max:
                break
            found[place] = record
            if len(found) >= count_max:
                break
    return [found[place] for place in sorted(found)]


def _has_key(record: bytes, topic: bytes, key: bytes, times: tuple[int, int]) -> bool:
    try:
        view = view_record(record)
    except RecordError:
        return False
    if view.topic != topic or not times[0] <= view.store_ms <= times[1]:
        return False
    properties = record[view.properties_at : view.properties_at + view.properties_size]
    if names.find(properties, names.UNIQ_KEY.encode()) == key:
        return True
    return key in (names.find(properties, names.KEYS.encode()) or b"").split(b" ")
