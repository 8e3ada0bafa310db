"""Views of records that were lost in damage, and are there again."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.metadata.changes import META_TOPIC
from imago_log.views.units.lost import not_real_until
from imago_log.views.units.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD
from imago_wire.hot import key_entries, scan_records, view_record
from imago_wire.record_format.layout import POSITION_UNIT, UNIT
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from imago_log.commitlog.checkpointer import Checkpointer
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.records import LogRecords
    from imago_log.disk.folder import DataFolder
    from imago_log.metadata.changes import Topic
    from imago_log.metadata.state import Metadata
    from imago_log.views.key_index import KeyIndex
    from imago_log.views.queues.queues import Queues
    from imago_log.views.queues.refilling import Refiller
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_wire.records.record import RecordView

logger = logging.getLogger(__name__)

READ_BYTES = 4 << 20

_META = META_TOPIC.encode()
_NOT_REAL = (BLANK_SIZE_FIELD, LOST_SIZE_FIELD)

RecordRun = list["RecordView"]
"""Records of one queue whose queue offsets follow one another."""


@dataclass(slots=True, eq=False)
class ViewRestorer:
    """Adds to the views the records that were lost when they were made."""

    log: CommitLog
    records: LogRecords
    folder: DataFolder
    metadata: Metadata
    queues: Queues
    keys: KeyIndex
    refiller: Refiller
    checkpointer: Checkpointer

    def restore(self, start: int, end: int) -> None:
        """Make the views of a part of the log that is there again."""
        keys = bytearray()
        at, chunk = start, READ_BYTES
        while at < end:
            data = self.log.read(at, min(chunk, end - at))
            scan = scan_records(data, at)
            self.restore_units(scan.views)
            keys += key_entries(data[: scan.end], at)
            at += scan.end
            if scan.stop is not ScanStop.SHORT or len(data) < chunk:
                break
            chunk = READ_BYTES if scan.end else chunk * 2
        self.restore_keys(start, end, bytes(keys))

    def restore_units(self, views: list[RecordView]) -> None:
        """Make the units of records that were lost and are there again."""
        by_queue: dict[tuple[bytes, int], list[RecordView]] = {}
        for view in views:
            by_queue.setdefault((view.topic, view.queue_id), []).append(view)
        for found in by_queue.values():
            queue, topic = self.queue(found[-1])
            if queue is None or topic is None:
                continue
            own = [view for view in found if view.physical_offset >= topic.birth]
            if found[0].topic == _META:
                own = [view for view in own if not self._is_another(view)]
            for run in _runs(own):
                self._restore(queue, topic, run)
        if self.metadata.unsure and any(topic == _META for topic, _ in by_queue):
            # What these changes mean now, only the whole log can tell, or another member.
            self.folder.forget_views()
            logger.warning("metadata.healed: the next start reads all of the log")

    def restore_keys(self, start: int, end: int, entries: bytes) -> None:
        """Put the key index's entries of a part of the log where they belong."""
        keys = self.keys
        keys.digest()
        if start >= keys.end or keys.holds(start, end - start, entries):
            return
        # A crash while the entries move must not leave any that count.
        self.checkpointer.lower_keys(start, keys.count_below(start))
        self.checkpointer.write()
        keys.replace(start, end - start, entries)

    def is_in_the_way(self, view: RecordView) -> bool:
        """Whether a record cannot be put back: nobody reads changes of metadata by queue offset."""
        return view.topic != _META and self._is_another(view)

    def _is_another(self, view: RecordView) -> bool:
        """Whether another whole record of the log has a record's queue offset.

        A unit alone proves nothing: its file may be damaged as well.
        """
        queue, _ = self.queue(view)
        if queue is None or not queue.first <= view.queue_offset < queue.end:
            return False
        place, size, _ = queue.unit(view.queue_offset)
        if size in _NOT_REAL or place == view.physical_offset:
            return False
        record = self.records.whole(place)
        if record is None:
            return False
        found = view_record(record)
        own = (view.topic, view.queue_id, view.queue_offset)
        return (found.topic, found.queue_id, found.queue_offset) == own

    def queue(self, view: RecordView) -> tuple[ConsumeQueue, Topic] | tuple[None, None]:
        """Return the queue of a record and its topic; None where it has none any more."""
        if not view.has_unit:
            return None, None
        try:
            topic = self.metadata.topic(view.topic.decode("utf-8", "replace"))
        except KeyError:
            return None, None  # deleted meanwhile
        if view.physical_offset < topic.birth:
            return None, None
        return self.queues.get(topic, view.queue_id), topic

    def _restore(self, queue: ConsumeQueue, topic: Topic, run: RecordRun) -> None:
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
            if queue.lookup.last_place >= view.physical_offset:
                continue
            if not self.refiller.add_record(queue, topic, view):
                self.folder.forget_views()
                logger.error(
                    "queue.short queue=%s/%d end=%d, healed is %d: the next start builds views "
                    "again", view.topic, view.queue_id, queue.end, view.queue_offset,
                )  # fmt: skip
                return


def _runs(views: list[RecordView]) -> list[RecordRun]:
    """Return the records of one queue in runs."""
    runs: list[RecordRun] = []
    for view in views:
        if runs and runs[-1][-1].queue_offset + 1 == view.queue_offset:
            runs[-1].append(view)
        elif view.has_unit:
            runs.append([view])
    return runs


def _raise_lost(queue: ConsumeQueue, view: RecordView) -> None:
    """Let lost units behind a record that is back not point before it: units are in log order."""
    start = view.queue_offset + 1
    end = not_real_until(queue, start, queue.end)
    if start < end:
        _, size, end_position = queue.unit(end - 1)
        tag = end_position if size == LOST_SIZE_FIELD else 0
        unit = UNIT.pack(view.physical_offset, LOST_SIZE_FIELD, tag)
        behind = view.metaq_position + view.metaq_size
        position = POSITION_UNIT.pack(behind, LOST_SIZE_FIELD) if queue.tail.dual else b""
        queue.overwrite(start, unit * (end - start), position * (end - start))
