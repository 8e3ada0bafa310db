"""Makes and keeps up the MetaQ files of materialised topics, behind the append.

The store's thread plans which messages go where, the worker reads them from the log and writes
them, and the store's thread takes over what was written: the only state that both see is the job.
The files follow the queue's units, not the log, so after a crash nothing needs to be remembered:
where a partition's files end is where writing goes on.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from imago_log.commitlog.recent import RecentLog
from imago_log.commitlog.records import LogRecords
from imago_log.config import always_due
from imago_log.errors import UnreadableError
from imago_log.views.metaq.metaq_archive import Packing
from imago_log.views.metaq.metaq_writing import (
    BLOCK_BYTES_MAX,
    MetaqBlock,
    Partition,
    WritingJob,
    next_blocks,
    place_of,
)
from imago_log.views.units.consume_queue import UNIT_SIZE
from imago_log.views.units.lost import first_kept, first_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.config import Due
    from imago_log.disk.worker import Background
    from imago_log.errors import StoreError
    from imago_log.metadata.changes import Topic
    from imago_log.views.metaq.metaq_segments import MetaqFolder, MetaqSegments
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_log.views.units.visibility import Visibility
    from imago_wire.errors import RecordError

logger = logging.getLogger(__name__)

ROUND_BYTES_MAX = 16 << 20
"""What one job of the worker writes: other jobs wait for it."""
LAST_ROUNDS_MAX = 4
WORKER_SHARE = 0.25
"""Of the processor's time, while files are written."""
BESIDE_READERS_SHARE = 0.1
"""The same while somebody reads what has no files yet: who reads that needs none of them."""
BACKLOG_BYTES_MAX = 1 << 30
"""Of a partition's older messages so many get files; what is before is read from the log."""
LOOKED_AT_MAX = 1024
"""Partitions that one round checks."""
CREATED_MAX = 8
"""Partitions that get their first file in one round: making folders and files is slow."""


class Materialiser:
    """All partitions that have files of their own, by topic name and queue id."""

    def __init__(
        self,
        files: MetaqFolder,
        log: CommitLog,
        damage: Damage,
        background: Background,
        visibility: Visibility,
        explained: Callable[[ConsumeQueue, UnreadableError], bool],
    ) -> None:
        """Files are immutable, so they hold only what is visible: it cannot be cut off any more.

        `explained` inspects what could not be read; true: now it is known what is lost, or it is
        mended.
        """
        self._files, self._vfs = files, files.pool.vfs
        self._damage, self._background = damage, background
        self._visibility, self._explained = visibility, explained
        self._log, self._records = log, LogRecords(log, RecentLog(0), damage)
        """The worker's own: what is recent belongs to the store's thread."""
        self.packing = Packing(self._vfs, background.submit)
        self._by_key: dict[tuple[str, int], Partition] = {}
        self._order: list[Partition] = []
        self._cursor = 0
        self._job: WritingJob | None = None
        self._verify = False
        """Whether files that are found may be torn."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._order)

    def has(self, topic: Topic) -> bool:
        """Whether a partition of this topic is taken up."""
        return any(found.topic is topic for found in self._order)

    def get(self, topic: str, queue_id: int) -> MetaqSegments | None:
        """Return the files of a partition, if it has any."""
        partition = self._by_key.get((topic, queue_id))
        return partition.segments if partition is not None else None

    # Finding

    def verify_found(self) -> None:
        """Check files found from now on: the last stop was not in order, they may be torn."""
        self._verify = True

    def open(self, topic: Topic, queue: ConsumeQueue) -> None:
        """Take a partition up: find its files, or plan to make them."""
        queue_id = queue.tail.queue_id
        segments = self._files.segments(topic, queue_id)
        segments.load(verify=self._verify)
        partition = Partition(topic, queue, segments)
        if self._by_key.get((topic.name, queue_id)) is None:
            self._order.append(partition)
        else:
            self._order[self._order.index(self._by_key[topic.name, queue_id])] = partition
        self._by_key[topic.name, queue_id] = partition
        if topic.archive == "zip":
            self.packing.find(segments.folder)
        segments.begin_at(topic.begin(queue_id))
        segments.truncate(queue.tail.next_position)
        self._find_next(partition)

    def _find_next(self, partition: Partition) -> None:
        queue, segments = partition.queue, partition.segments
        low = queue.lookup.min_offset(self._log.start)
        if segments.exists:
            found = queue.lookup.offset_of_position(segments.end, low)
            position = queue.position(found)[0] if found < queue.end else queue.tail.next_position
            if position == segments.end:
                partition.next_offset = found
                return
            # What lies between is gone from the log: the old files would end in a hole.
            segments.discard()
        oldest = queue.tail.next_position - BACKLOG_BYTES_MAX
        partition.next_offset = queue.lookup.offset_of_position(oldest, low)

    # Writing

    def advance(self, bytes_min: int = 1, *, beside_readers: bool = False) -> None:
        """Take over what the worker has written, and give it more to write.

        Partitions that are less than `bytes_min` behind can wait. `beside_readers`: somebody reads
        messages that are neither in these files nor in memory.
        """
        if self._job is not None and not self._take():
            return
        blocks = self._plan(bytes_min)
        if blocks:
            share = BESIDE_READERS_SHARE if beside_readers else WORKER_SHARE
            rest = partial(self._background.leave_to_others, share)
            job = self._job = WritingJob(self._vfs, self._records, blocks, rest)
            self._background.submit_waiting(job.run)
            self._take()

    def write_all(self) -> None:
        """Write what is new in this thread, before the store closes.

        Of a large backlog only a part: the next start goes on with it.
        """
        self._settle()
        for _ in range(LAST_ROUNDS_MAX):
            blocks = self._plan(1, created_max=len(self._order))
            if not blocks:
                return
            self._job = WritingJob(self._vfs, self._records, blocks)
            self._job.run()
            self._take()

    def _settle(self) -> None:
        """Wait until the worker has stopped writing: the files are about to be cut or removed."""
        if self._job is not None:
            self._job.cancel()
            self._background.drain()
            self._take()
            self._job = None  # the worker has ended without doing it

    @property
    def is_due(self) -> bool:
        """Whether a round was written, so that the next one can begin."""
        return self._job is not None and self._job.done

    def _plan(self, bytes_min: int, created_max: int = CREATED_MAX) -> list[MetaqBlock]:
        """Decide what is written next: of all partitions that are behind about as much.

        In the order of the log: what is read of it for one partition serves the next ones.
        """
        ready = list(self._ready(bytes_min, created_max))
        share = max(BLOCK_BYTES_MAX, ROUND_BYTES_MAX // max(1, len(ready)))
        blocks = [
            block
            for partition, visible in ready
            for block in next_blocks(
                partition,
                first_lost(partition.queue, self._damage, partition.next_offset, visible),
                share,
            )
        ]
        return sorted(blocks, key=place_of)

    def _ready(self, bytes_min: int, created_max: int) -> Iterator[tuple[Partition, int]]:
        """Yield partitions that can be written on, and up to which message."""
        order, found = self._order, 0
        for _ in range(min(LOOKED_AT_MAX, len(order))):
            self._cursor = self._cursor + 1 if self._cursor + 1 < len(order) else 0
            partition = order[self._cursor]
            if partition.next_offset >= partition.queue.end or partition.behind < bytes_min:
                continue
            if partition.next_offset >= (visible := self._visibility.end(partition.queue)):
                continue
            if self._damage.may_lose and not self._pass_damage(partition):
                continue
            if not partition.segments.exists:
                if not created_max:
                    continue
                created_max -= 1
                partition.segments.begin(partition.queue.position(partition.next_offset)[0])
            yield partition, visible
            found += 1
            if found * BLOCK_BYTES_MAX >= ROUND_BYTES_MAX:
                return

    def _pass_damage(self, partition: Partition) -> bool:
        """Begin again behind lost messages, for files have no holes; false when nothing follows."""
        queue, start = partition.queue, partition.next_offset
        partition.next_offset = first_kept(queue, self._damage, start, queue.end)
        if partition.next_offset > start:
            partition.segments.discard()
        return partition.next_offset < queue.end

    def _take(self) -> bool:
        """Take over what a finished job has written; false while it is being worked on."""
        job = self._job
        if job is None or not job.done:
            return False
        self._job = None
        for block in job.blocks[: job.written]:
            block.partition.segments.grew(block.size)
            block.partition.next_offset += len(block.units) // UNIT_SIZE
        if job.damage is not None:
            block = job.blocks[job.written]
            if isinstance(job.damage, UnreadableError):
                job.damage.of_unit(block.offset)
            self._give_up(block.partition, job.damage)
        return True

    def _give_up(self, partition: Partition, damage: StoreError | RecordError) -> None:
        """Go on behind records that cannot be read: they are lost to all readers."""
        if isinstance(damage, UnreadableError) and self._explained(partition.queue, damage):
            return
        tail = partition.queue.tail
        name = f"{tail.topic.decode()}-{tail.queue_id}"
        logger.warning("metaq_files.begin_anew partition=%s damage=%s", name, damage)
        partition.segments.discard()
        partition.next_offset = partition.queue.end

    # Cutting and removing

    def make_again(self, topic: str, queue_id: int) -> bool:
        """Throw the files of a partition away, which are wrong; false: it has none."""
        partition = self._by_key.get((topic, queue_id))
        if partition is None:
            return False
        self._settle()
        logger.warning("metaq_files.rebuild partition=%s-%d", topic, queue_id)
        partition.segments.discard()
        self._find_next(partition)
        return True

    def drop_topic(self, topic: str) -> None:
        """Remove the files of a topic."""
        self._settle()
        for key in [key for key in self._by_key if key[0] == topic]:
            partition = self._by_key.pop(key)
            self._order.remove(partition)
            partition.segments.discard()

    def truncate(self, _end: int) -> None:
        """Cut the files where their queues end now."""
        self._settle()
        for partition in self._order:
            partition.segments.truncate(partition.queue.tail.next_position)
            partition.next_offset = min(partition.next_offset, partition.queue.end)

    def reset(self, _start: int) -> None:
        """Let go of all partitions; their files stay."""
        self._settle()
        self._by_key.clear()
        self._order.clear()

    # Retention

    def take_begins(self, topic: Topic) -> None:
        """Send readers of deleted messages to where the topic says that its partitions begin."""
        for queue_id in topic.begins:
            if (partition := self._by_key.get((topic.name, queue_id))) is not None:
                partition.segments.begin_at(topic.begin(queue_id))

    def expire(self, now_ms: int, due: Due = always_due) -> None:
        """Remove files that are older or larger than their topic allows, or gone from the log.

        `due` says whether it is the time at which a topic has its expired files removed.
        """
        for partition in self._order:
            segments, topic = partition.segments, partition.topic
            segments.begin_at(topic.begin(partition.queue.tail.queue_id))
            while len(starts := segments.starts()) > 1:
                newest = (
                    partition.queue.lookup.offset_of_position(starts[1], partition.queue.first) - 1
                )
                if newest >= partition.queue.first and starts[1] > segments.min_position:
                    place = partition.queue.unit(newest)[0]
                    waits = place >= self._log.start and not due(topic.delete_when)
                    if waits or (
                        place >= self._log.start
                        and not self._expired(topic, segments, place, now_ms)
                    ):
                        break
                archived = segments.drop_oldest(archive=bool(topic.archive))
                if archived is not None and topic.archive == "zip":
                    self.packing.add(archived)

    def _expired(self, topic: Topic, segments: MetaqSegments, place: int, now_ms: int) -> bool:
        age_max, size_max = topic.retention_ms, topic.retention_bytes
        if age_max is not None and self._is_older(place, now_ms - age_max):
            return True
        first_end = segments.starts()[1]
        return size_max is not None and segments.end - first_end >= size_max

    def _is_older(self, place: int, ms: int) -> bool:
        try:
            return self._records.store_ms(place) < ms
        except UnreadableError:
            return False  # who reads it will find out why
