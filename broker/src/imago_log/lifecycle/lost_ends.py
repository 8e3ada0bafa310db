"""Records that are gone from the ends of log and queues, as far as a start can know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.disk.folder import LastStop
from imago_wire.record_format.layout import FIXED_SIZE_V4

if TYPE_CHECKING:
    from imago_log.state import StoreState


def lost_at_end(parts: StoreState, end: int, last_stop: LastStop) -> int:
    """Take out of service what is gone from the end of a log that a kill has left; return its end.

    The page cache was whole and units follow their records: the newest units tell how far the
    log went.
    """
    if last_stop is not LastStop.KILLED:
        return end
    log_end = min(parts.queue_loader.found.log_end, parts.log.files_end)
    if log_end > end:
        parts.damage.add(end, log_end, "zeros where units name records")
    return max(end, log_end)


def keep_ends(parts: StoreState, last_stop: LastStop) -> None:
    """Let queues that end in damage end where their files said, so that no offset comes twice.

    After a power loss it is not known what the files said.
    """
    queues = parts.queues
    if not parts.damage.ranges or last_stop is LastStop.POWER_LOST:
        return
    for name, queue_id in parts.queue_folders.on_disk():
        if name in parts.metadata.topics or name in parts.metadata.builtin:
            queues.get(parts.metadata.topic(name), queue_id)
    for (name, queue_id), (end, position, place) in parts.queue_loader.found.queues.items():
        lost = parts.damage.at(place)
        queue = queues.find(name, queue_id)
        if lost is None or queue is None:
            continue
        if parts.metadata.topic(name).birth <= place and queue.end < end:
            grown = position - queue.tail.next_position if queue.tail.dual else 0
            room = (lost.end - max(queue.lookup.last_place, parts.log.start)) // FIXED_SIZE_V4
            if end - queue.end <= room and 0 <= grown <= parts.log.end:
                queue.lose(end, position, max(lost.start, queue.lookup.last_place))
