"""Put a damaged part of the log back: its bytes from elsewhere, then the views made of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_log.commitlog.borders import segment_end
from imago_log.errors import LogIOError
from imago_log.metadata.state import META_TOPIC
from imago_log.views.lost import not_real_until
from imago_log.views.reindexing import add_record
from imago_log.views.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD
from imago_wire.hot import key_entries, scan_records, view_record
from imago_wire.layout import BLANK_SIZE, POSITION_UNIT, UNIT
from imago_wire.record import ScanStop

if TYPE_CHECKING:
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.lifecycle.parts import Parts
    from imago_log.metadata.state import Topic
    from imago_log.results import DamagedRange
    from imago_log.views.consume_queue import ConsumeQueue
    from imago_wire.record import RecordView

logger = logging.getLogger(__name__)

APPLY_UNITS_MAX = 1 << 16
"""Lost units behind healed records that are written anew with each piece; where there are more,
they wait until APPLY_BYTES have come."""
APPLY_BYTES = 4 << 20

_META = META_TOPIC.encode()
_NOT_REAL = (BLANK_SIZE_FIELD, LOST_SIZE_FIELD)

Run = list["RecordView"]
"""Records of one queue whose queue offsets follow one another."""


@dataclass(slots=True)
class _Begun:
    """A range whose front is put back."""

    damaged: DamagedRange
    at: int
    """Where the next bytes go."""
    applied: int
    """The range begins here by now: what is before it is in service."""
    views: list[RecordView] = field(default_factory=list)
    """Records that are back, but in no view yet."""
    keys: bytearray = field(default_factory=bytearray)
    """Entries of the key index for all that is back."""
    keys_from: int = 0


class Healer:
    """Heals the ranges of one store, front to back. All methods belong to the store's thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._begun: _Begun | None = None

    def heal(self, offset: int, data: bytes) -> int:
        """Write what was lost in a damaged range: see `MessageStore.heal`."""
        parts, begun = self._parts, self._begun
        if begun is None or begun.at != offset or not data:
            self.settle()
            begun = self._begin(offset) if data else None
        if begun is None or begun.at + len(data) > begun.damaged.end:
            return 0
        size, views = _records(parts.log, begun.at, begun.damaged.end, data)
        if not size:
            return 0
        end = offset + size
        conflict = next((view for view in views if _is_in_the_way(parts, view)), None)
        if conflict is not None:
            logger.warning(
                "log.not-healed from=%d to=%d queue=%s/%d: another record has queue offset %d",
                offset, end, conflict.topic, conflict.queue_id, conflict.queue_offset,
            )  # fmt: skip
            return 0
        data = data[:size]
        try:
            parts.log.put_back(offset, data)
        except LogIOError as error:
            logger.warning("log.not-healed from=%d to=%d error=%s", offset, end, error)
            return 0
        records_end = views[-1].physical_offset + views[-1].size if views else offset
        begun.keys += key_entries(data[: records_end - offset], offset)
        begun.views += views
        begun.at = end
        self._begun = begun
        if end == begun.damaged.end or end - begun.applied >= APPLY_BYTES or self._is_cheap(begun):
            self._apply(begun)
        return size

    def settle(self) -> None:
        """Put into service what has come so far: nothing more comes now."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._apply(begun)

    def _begin(self, offset: int) -> _Begun | None:
        found = self._parts.damage.at(offset)
        if found is None or found.start != offset:
            return None
        return _Begun(found, offset, offset, keys_from=offset)

    def _is_cheap(self, begun: _Begun) -> bool:
        """Whether few lost units follow: those are written anew with each piece that is applied."""
        parts, last = self._parts, {(view.topic, view.queue_id): view for view in begun.views}
        count = 0
        for view in last.values():
            queue, _ = _queue(parts, view)
            if queue is not None and queue.first <= view.queue_offset < queue.end:
                known = min(queue.end, view.queue_offset + APPLY_UNITS_MAX)
                count += not_real_until(queue, view.queue_offset, known) - view.queue_offset
        return count < APPLY_UNITS_MAX

    def _apply(self, begun: _Begun) -> None:
        """Put into service what was put back, and make its views."""
        parts, damaged, end = self._parts, begun.damaged, begun.at
        views, begun.views = begun.views, []
        whole = end == damaged.end
        if end > begun.applied:
            found = parts.damage.at(begun.applied)
            if found is None:  # its file has been deleted, or it was cut off
                self._begun = None
                return
            parts.damage.shrink(found, end)
            restore_units(parts, views)
            begun.applied = end
        if whole:
            restore_keys(parts, begun.keys_from, end, bytes(begun.keys))
            self._begun = None
        logger.warning("log.healed from=%d to=%d records=%d", damaged.start, end, len(views))


def _records(log: CommitLog, start: int, end: int, data: bytes) -> tuple[int, list[RecordView]]:
    """Return how much of these bytes may fill the front of a range, and the records in it."""
    scan = scan_records(data, start)
    if len(data) < end - start:
        whole = scan.stop in (ScanStop.END, ScanStop.SHORT, ScanStop.BLANK)
        return (scan.end, scan.views) if whole else (0, [])
    filled = start + scan.end
    fills = scan.stop is ScanStop.END and filled == end
    if scan.stop is ScanStop.BLANK and end == segment_end(log, start):
        said = int.from_bytes(data[scan.end : scan.end + 4], "big")
        fills = said == end - filled and not any(data[scan.end + BLANK_SIZE :])
    return (len(data), scan.views) if fills else (0, [])


def _is_in_the_way(parts: Parts, view: RecordView) -> bool:
    """Whether a record cannot be put back: nobody reads changes of metadata by queue offset."""
    return view.topic != _META and _is_another(parts, view)


def _is_another(parts: Parts, view: RecordView) -> bool:
    """Whether another whole record of the log has a record's queue offset.

    A unit alone proves nothing: its file may be damaged as well.
    """
    queue, _ = _queue(parts, view)
    if queue is None or not queue.first <= view.queue_offset < queue.end:
        return False
    place, size, _ = queue.unit(view.queue_offset)
    if size in _NOT_REAL or place == view.physical_offset:
        return False
    record = parts.records.whole(place)
    if record is None:
        return False
    found = view_record(record)
    own = (view.topic, view.queue_id, view.queue_offset)
    return (found.topic, found.queue_id, found.queue_offset) == own


def _queue(parts: Parts, view: RecordView) -> tuple[ConsumeQueue, Topic] | tuple[None, None]:
    if not view.has_unit:
        return None, None
    try:
        topic = parts.metadata.topic(view.topic.decode("utf-8", "replace"))
    except KeyError:
        return None, None  # deleted meanwhile
    if view.physical_offset < topic.birth:
        return None, None
    return parts.queues.get(topic, view.queue_id), topic


def restore_units(parts: Parts, views: list[RecordView]) -> None:
    """Make the units of records that were lost and are there again."""
    by_queue: dict[tuple[bytes, int], list[RecordView]] = {}
    for view in views:
        by_queue.setdefault((view.topic, view.queue_id), []).append(view)
    for found in by_queue.values():
        queue, topic = _queue(parts, found[-1])
        if queue is None or topic is None:
            continue
        own = [view for view in found if view.physical_offset >= topic.birth]
        if found[0].topic == _META:
            own = [view for view in own if not _is_another(parts, view)]
        for run in _runs(own):
            _restore(parts, queue, topic, run)
    if parts.metadata_unsure and any(topic == _META for topic, _ in by_queue):
        # What these changes mean now, only the whole log can tell, or another member.
        parts.folder.forget_views()
        logger.warning("metadata.healed: the next start reads all of the log")


def _runs(views: list[RecordView]) -> list[Run]:
    """Return the records of one queue in runs."""
    runs: list[Run] = []
    for view in views:
        if runs and runs[-1][-1].queue_offset + 1 == view.queue_offset:
            runs[-1].append(view)
        elif view.has_unit:
            runs.append([view])
    return runs


def _restore(parts: Parts, queue: ConsumeQueue, topic: Topic, run: Run) -> None:
    first = run[0].queue_offset
    queue.reach_back(first)
    known = [view for view in run if view.queue_offset < queue.end]
    if known:
        units = [UNIT.pack(v.physical_offset, v.size, v.tag_code) for v in known]
        positions = [POSITION_UNIT.pack(v.metaq_position, v.metaq_size) for v in known]
        dual = queue.tail.dual
        queue.overwrite(first, b"".join(units), b"".join(positions) if dual else b"")
        _raise_lost(queue, known[-1])
    for view in run[len(known) :]:
        if queue.last_place < view.physical_offset and not add_record(parts, queue, topic, view):
            parts.folder.forget_views()
            logger.error(
                "queue.short queue=%s/%d end=%d, healed is %d: the next start builds views anew",
                view.topic, view.queue_id, queue.end, view.queue_offset,
            )  # fmt: skip
            return


def _raise_lost(queue: ConsumeQueue, view: RecordView) -> None:
    """Let lost units behind a record that is back not point before it: units are in log order."""
    start = view.queue_offset + 1
    end = not_real_until(queue, start, queue.end)
    if start < end:
        unit = UNIT.pack(view.physical_offset, LOST_SIZE_FIELD, 0)
        behind = view.metaq_position + view.metaq_size
        position = POSITION_UNIT.pack(behind, LOST_SIZE_FIELD) if queue.tail.dual else b""
        queue.overwrite(start, unit * (end - start), position * (end - start))


def restore_keys(parts: Parts, start: int, end: int, entries: bytes) -> None:
    """Put the key index's entries of a part of the log where they belong."""
    keys = parts.keys
    keys.digest()
    if start >= keys.end or keys.holds(start, end - start, entries):
        return
    # A crash while the entries move must not leave any that count.
    parts.keys_synced = min(parts.keys_synced, (start, keys.count_below(start)))
    parts.checkpoint.write(parts.checkpoint_now())
    keys.replace(start, end - start, entries)


def restore(parts: Parts, start: int, end: int) -> None:
    """Give the views what was lost when they were made and is there again, from the log."""
    keys = bytearray()
    at, chunk = start, APPLY_BYTES
    while at < end:
        data = parts.log.read(at, min(chunk, end - at))
        scan = scan_records(data, at)
        restore_units(parts, scan.views)
        keys += key_entries(data[: scan.end], at)
        at += scan.end
        if scan.stop is not ScanStop.SHORT or len(data) < chunk:
            break
        chunk = APPLY_BYTES if scan.end else chunk * 2
    restore_keys(parts, start, end, bytes(keys))
