"""Put a damaged part of the log back: its bytes from elsewhere, then the views made of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.borders import segment_end
from imago_log.errors import LogIOError
from imago_log.inspecting import rewrite
from imago_log.metadata import META_TOPIC
from imago_log.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD
from imago_wire.hot import scan_records
from imago_wire.layout import BLANK_SIZE, POSITION_UNIT, UNIT
from imago_wire.record import ScanStop

if TYPE_CHECKING:
    from imago_log.commit_log import CommitLog
    from imago_log.consume_queue import ConsumeQueue
    from imago_log.parts import Parts
    from imago_log.results import DamagedRange
    from imago_wire.record import RecordView

logger = logging.getLogger(__name__)

_NOT_REAL = (BLANK_SIZE_FIELD, LOST_SIZE_FIELD)


def heal(parts: Parts, offset: int, data: bytes) -> int:
    """Write what was lost in a damaged range: see `MessageStore.heal`."""
    damaged = parts.damage.at(offset)
    if damaged is None or damaged.start != offset or len(data) > damaged.size:
        return 0
    size, views = _records(parts.log, damaged, data)
    if not size:
        return 0
    end = offset + size
    if not all(_fits(parts, view) for view in views):
        logger.warning("log.not-healed from=%d to=%d", offset, end)
        return 0
    data = data[:size]
    try:
        parts.log.put_back(offset, data)
    except LogIOError as error:
        logger.warning("log.not-healed from=%d to=%d error=%s", offset, end, error)
        return 0
    parts.damage.shrink(damaged, end)
    restore(parts, offset, data, views)
    if end == damaged.end:
        parts.damage.save()
    else:
        # Until then the note says more than is damaged, and the next start looks for itself.
        parts.damage.save_later()
    logger.warning("log.healed from=%d to=%d records=%d", offset, end, len(views))
    return size


def _records(log: CommitLog, damaged: DamagedRange, data: bytes) -> tuple[int, list[RecordView]]:
    """Return how much of these bytes may fill the front of a range, and the records in it."""
    scan = scan_records(data, damaged.start)
    if len(data) < damaged.size:
        whole = scan.stop in (ScanStop.END, ScanStop.SHORT, ScanStop.BLANK)
        return (scan.end, scan.views) if whole else (0, [])
    end = damaged.start + scan.end
    fills = scan.stop is ScanStop.END and end == damaged.end
    if scan.stop is ScanStop.BLANK and damaged.end == segment_end(log, damaged.start):
        said = int.from_bytes(data[scan.end : scan.end + 4], "big")
        fills = said == damaged.end - end and not any(data[scan.end + BLANK_SIZE :])
    return (len(data), scan.views) if fills else (0, [])


def _fits(parts: Parts, view: RecordView) -> bool:
    """Whether the queue of a record has nothing else at its offset."""
    queue = _queue(parts, view)
    if queue is None or not queue.first <= view.queue_offset < queue.end:
        return True
    place, size, _ = queue.unit(view.queue_offset)
    if size not in _NOT_REAL:
        return (place, size) == (view.physical_offset, view.size)
    return not queue.tail.dual or view.metaq_position >= queue.position(view.queue_offset)[0]


def _queue(parts: Parts, view: RecordView) -> ConsumeQueue | None:
    if not view.has_unit:
        return None
    try:
        topic = parts.metadata.topic(view.topic.decode("utf-8", "replace"))
    except KeyError:
        return None  # deleted meanwhile
    if view.physical_offset < topic.birth:
        return None
    return parts.queues.get(topic, view.queue_id)


def restore(parts: Parts, start: int, data: bytes, views: list[RecordView]) -> None:
    """Make units and keys of records that were lost and are there again."""
    last: dict[tuple[bytes, int], RecordView] = {}
    for view in views:
        queue = _queue(parts, view)
        if queue is None or view.queue_offset < queue.first:
            continue
        if view.queue_offset < queue.end:
            rewrite(queue, view)
            last[view.topic, view.queue_id] = view
        elif view.queue_offset == queue.end and queue.last_place < view.physical_offset:
            # The damage was at the log's end, and nothing has come to this queue since.
            position = (view.metaq_position, view.metaq_size)
            queue.add(view.physical_offset, view.size, view.tag_code, view.queue_offset, position)
    for view in last.values():
        queue = _queue(parts, view)
        if queue is not None:
            _raise_lost(queue, view)
    _restore_keys(parts, start, data, views)
    if any(view.topic == META_TOPIC.encode() for view in views):
        # What these changes mean now, only the whole log can tell.
        parts.folder.forget_views()
        logger.warning("metadata.healed log_offset=%d: the next start reads all of it", start)


def _raise_lost(queue: ConsumeQueue, view: RecordView) -> None:
    """Let lost units behind a record that is back not point before it: units are in log order."""
    end = start = view.queue_offset + 1
    while end < queue.end and queue.unit(end)[1] in _NOT_REAL:
        end += 1
    if start < end:
        unit = UNIT.pack(view.physical_offset, LOST_SIZE_FIELD, 0)
        behind = view.metaq_position + view.metaq_size
        position = POSITION_UNIT.pack(behind, LOST_SIZE_FIELD) if queue.tail.dual else b""
        queue.overwrite(start, unit * (end - start), position * (end - start))


def _restore_keys(parts: Parts, start: int, data: bytes, views: list[RecordView]) -> None:
    end = views[-1].physical_offset + views[-1].size if views else start
    keys = parts.keys
    if start >= keys.end or keys.agrees(start, data[: end - start]):
        return
    # A crash while the entries move must not leave any that count.
    parts.keys_synced = min(parts.keys_synced, (start, keys.count_below(start)))
    parts.checkpoint.write(parts.checkpoint_now())
    keys.replace(start, data[: end - start])
