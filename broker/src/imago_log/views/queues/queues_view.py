"""The queues as a view of the log: what a cut, a deletion, a sync … does to all of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.errors import ViewsInvalidError
from imago_log.views.queues.queues_comparison import QueuesComparison
from imago_log.views.units.lost import is_possible, lose_before, lose_gap, lost_from
from imago_log.views.view import SyncPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imago_log.commitlog.checkpointer import Checkpointer
    from imago_log.disk.files import Unsynced
    from imago_log.metadata.changes import Topic
    from imago_log.views.queues.queue_loading import QueueLoader
    from imago_log.views.queues.queue_writing import QueueWriter
    from imago_log.views.queues.queues import Queues
    from imago_log.views.queues.queues_comparison import PutRight
    from imago_log.views.queues.refilling import Refiller
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_wire.records.record import RecordView

logger = logging.getLogger(__name__)


class QueuesView:
    """All queues, open or not."""

    def __init__(
        self,
        queues: Queues,
        writer: QueueWriter,
        loader: QueueLoader,
        refiller: Refiller,
        checkpointer: Checkpointer,
        put_right: PutRight,
    ) -> None:
        self._queues, self._folders, self._loader = queues, queues.folders, loader
        self._writer, self._refiller, self._put_right = writer, refiller, put_right
        self._log, self._damage, self._metadata = refiller.log, refiller.damage, refiller.metadata
        self._checkpointer = checkpointer
        self.write_all, self.drop_topic = writer.write_all, queues.drop_topic
        self.lower_mark = checkpointer.lower_views

    # Records that are read again

    def add(self, _data: bytes, _log_offset: int, records: Iterable[RecordView]) -> None:
        """Give queues the units of records that a start reads again and their files lack."""
        held = self._loader.limit
        self.fill((view for view in records if view.physical_offset >= held), held)

    def fill(self, records: Iterable[RecordView], held: int) -> None:
        """Give queues the units of records; their files have all below a log offset."""
        for view in records:
            topic = self._topic(view) if view.has_unit else None
            if topic is not None and view.physical_offset >= topic.birth:
                self._index(topic, view, from_files=held > self._log.start)

    def claim(self, records: Iterable[RecordView]) -> None:
        """Take what damaged records at the log's end say, where it fits their queues.

        Otherwise the next messages would get offsets that were given out before.
        """
        for view in records:
            topic = self._topic(view)
            if topic is None:
                continue
            queue = self._queues.get(topic, view.queue_id)
            fits = not topic.dual or view.metaq_position == queue.tail.next_position
            if view.has_unit and view.queue_offset == queue.end and fits:
                _add(queue, view)

    def _topic(self, view: RecordView) -> Topic | None:
        """Return the topic of a record; None: deleted meanwhile."""
        try:
            return self._metadata.topic(view.topic.decode("utf-8", "replace"))
        except KeyError:
            return None

    def _index(self, topic: Topic, view: RecordView, *, from_files: bool) -> None:
        queue = self._queues.get(topic, view.queue_id)
        reached = view.queue_offset <= queue.end
        if not reached and not self._reach(queue, topic, view, from_files=from_files):
            logger.error("queue.record-left-out queue=%s/%d end=%d offset=%d log_offset=%d",
                         topic.name, view.queue_id, queue.end, view.queue_offset,
                         view.physical_offset)  # fmt: skip
            return
        if not _add(queue, view):
            raise ViewsInvalidError(f"{topic.name}/{view.queue_id} has positions, but no units")

    def _reach(
        self, queue: ConsumeQueue, topic: Topic, view: RecordView, *, from_files: bool
    ) -> bool:
        """Let a queue end where a record behind its end is; false: the record is not of it."""
        offset, place = view.queue_offset, view.physical_offset
        if not is_possible(offset, place):
            return False
        record = (offset, place, view.metaq_position)
        lose_before(queue, self._damage, topic.birth, self._log.start, record)
        if offset == queue.end or not (queue.end or queue.exists or from_files):
            return True
        if from_files:
            # A queue that seems to begin here has lost its files: it may have more before.
            raise ViewsInvalidError(
                f"{topic.name}/{view.queue_id} ends at {queue.end}, the log goes on at {offset}"
            )
        return lose_gap(queue, self._damage, topic.birth, record)

    # Cuts and deletions

    def truncate(self, end: int) -> None:
        """Forget what records at or after a log offset gave it."""
        self._queues.truncate(end, self._metadata.topics)
        self._forget_lost_ends()

    def _forget_lost_ends(self) -> None:
        """Let no queue end in lost messages: it is unknown which of them were cut off.

        The next record of a queue, or the healed one, says again how many there are.
        """
        if not self._damage.ranges:
            return
        topics = self._metadata.topics
        for name, queue_id in self._folders.on_disk():
            if name in topics:
                self._queues.get(topics[name], queue_id)
        for queue in self._queues:
            kept = lost_from(queue, queue.end)
            if kept < queue.end:
                queue.truncate(kept)

    def drop_before(self, start: int) -> None:
        """Let go of what records before a log offset gave it."""
        for queue in self._queues:
            queue.drop_before(queue.lookup.min_offset(start))

    def reset(self, start: int) -> None:
        """Drop everything and begin with nothing at a log offset."""
        self._queues.drop_all(keep_tails=True)
        self._folders.discard_segments()
        self._folders.sync()  # nothing marks units below the log's start as old
        self._loader.count_up_to(start)

    def rebuild(self, start: int) -> None:
        """Forget everything; the witness still looks into the files that were."""
        self._loader.witness.look_in(self._queues.drop_all())
        self._loader.count_up_to(start)

    # Syncs and checks

    def is_synced(self, end: int) -> bool:
        """Whether all units are on the device."""
        return self._checkpointer.views_synced == end == self._writer.written_end(end)

    def plan_sync(self, end: int) -> SyncPlan:
        """Plan the syncs of queues that have been written since the last one."""
        written_end = self._writer.written_end(end)
        planned = self._writer.unsynced()

        def files() -> Iterator[Unsynced]:
            for queue, synced, _ in planned:
                for sequence in queue.files():
                    yield from sequence.unsynced(synced)

        def note() -> None:
            self._checkpointer.begin_views(written_end)
            for queue, _, queue_end in planned:
                queue.mark_synced(queue_end)

        return SyncPlan(files(), note=note)

    def compare(self) -> QueuesComparison:
        """Return what compares units with those of the records."""
        return QueuesComparison(self._queues, self._refiller, self._put_right)


def _add(queue: ConsumeQueue, view: RecordView) -> bool:
    position = (view.metaq_position, view.metaq_size)
    place, size = view.physical_offset, view.size
    return queue.add(place, size, view.tag_code, view.queue_offset, position)
