"""Makes units that the files of a queue have lost, or never had, from the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.commitlog.log_reader import LogReader, find_damage
from imago_log.errors import ViewsInvalidError
from imago_log.metadata.changes import QUEUE_KIND, queue_key
from imago_log.signals import Signal
from imago_log.views.units.lost import lose_before, lose_gap
from imago_log.views.units.unit_files import LOST_SIZE_FIELD

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.metadata.changes import Topic
    from imago_log.metadata.state import Metadata
    from imago_log.views.queues.queue_folders import QueueFolders
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_log.views.units.unit_proof import UnitProof
    from imago_wire.records.record import RecordView

logger = logging.getLogger(__name__)


class Refiller:
    """Fills queues from the log."""

    def __init__(self, folders: QueueFolders, metadata: Metadata, proof: UnitProof) -> None:
        self.log, self.damage, self._proof = proof.log, proof.damage, proof
        self._folders, self.metadata = folders, metadata
        self.refilled: Signal[str, int] = Signal()
        """Called with topic and queue id: files made of its units are to be made again."""

    def refill(self, queue: ConsumeQueue, topic: Topic) -> None:
        """Give a queue the units that its files have lost: those behind its newest one.

        What is lost between is not told by damage of the log: its own files are damaged.
        """
        log, name, queue_id = self.log, queue.tail.topic, queue.tail.queue_id
        before = queue.end

        def take(_: bytes, __: int, views: list[RecordView]) -> None:
            for view in views:
                own = (view.topic, view.queue_id) == (name, queue_id)
                if own and view.queue_offset >= queue.end:
                    self._add_behind_gap(queue, topic, view)

        at = max(log.start, topic.birth)
        if queue.end > queue.first:
            place, size, _ = queue.unit(queue.end - 1)
            if not self._proof.ends_right(queue, log.end, save=True):
                self._folders.clear(queue)
            elif size != LOST_SIZE_FIELD and self.damage.at(place) is None:
                if place < log.start:
                    self._folders.clear(queue)  # what it has has expired
                else:
                    at = place + size
        self.read_to_end(at, take)
        begin_empty(queue, self.metadata.kind(QUEUE_KIND).get(queue_key(topic.name, queue_id)))
        logger.warning(
            "queue.refilled queue=%s/%d from=%d to=%d", name, queue_id, before, queue.end
        )
        self.refilled(topic.name, queue_id)

    def read_to_end(self, at: int, take: Callable[[bytes, int, list[RecordView]], None]) -> None:
        """Read the log from a border on; what is found to be damaged is noted and passed over."""
        log, damage = self.log, self.damage
        while at < log.end:
            at, reason = LogReader(log, take).run(at, log.end)
            if at < log.end and damage.at(at) is None:
                found = find_damage(log, at, log.end, self._proof.witness)
                if found is None:
                    raise ViewsInvalidError(f"log offset {at}: {reason}")
                damage.add(*found)
                damage.save_later()
            lost = damage.at(at)
            if lost is not None:
                at = lost.end

    def add_record(self, queue: ConsumeQueue, topic: Topic, view: RecordView) -> bool:
        """Append the units of a record behind a queue's end; false: those before it are missing."""
        offset, place = view.queue_offset, view.physical_offset
        record = (offset, place, view.metaq_position)
        lose_before(queue, self.damage, topic.birth, self.log.start, record)
        if offset > queue.end and queue.lookup.is_bare and topic.birth < self.log.start:
            queue.begin_at(offset, max(view.metaq_position, 0))
        position = (view.metaq_position, view.metaq_size)
        return queue.add(place, view.size, view.tag_code, offset, position)

    def _add_behind_gap(self, queue: ConsumeQueue, topic: Topic, view: RecordView) -> None:
        """Append the units of a record that all records before it have been looked for."""
        if self.add_record(queue, topic, view):
            return
        record = (view.queue_offset, view.physical_offset, view.metaq_position)
        if lose_gap(queue, self.damage, topic.birth, record):
            self.add_record(queue, topic, view)


def begin_empty(queue: ConsumeQueue, end: tuple[int, int] | None) -> None:
    """Continue a queue whose records are all gone where it was: queue offset and position."""
    if end is not None and end[0] > queue.end and queue.lookup.is_bare:
        queue.begin_at(*end)


def begin_empty_queues(metadata: Metadata, queue: Callable[[str, int], ConsumeQueue]) -> None:
    """Continue queues whose records are all gone where they were, not at 0."""
    for key, end in metadata.kind(QUEUE_KIND).items():
        name, _, queue_id = key.rpartition("/")
        try:
            found = queue(name, int(queue_id))
        except KeyError:
            continue  # its creation is lost in damage
        begin_empty(found, end)
