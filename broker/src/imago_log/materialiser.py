"""Keeps the MetaQ files of materialised topics up with their queues, behind the append.

The files follow the queue's units, not the log, so after a crash nothing needs to be remembered:
where a partition's files end is where writing goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.metaq_reading import whole_messages
from imago_log.metaq_segments import MetaqSegments
from imago_wire.hot import metaq_block

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_log.config import StoreConfig
    from imago_log.consume_queue import ConsumeQueue
    from imago_log.files import FilePool
    from imago_log.metadata import Topic
    from imago_log.reading import LogRecords

BLOCK_BYTES_MAX = 1 << 20
"""Written in one call, but for the last message in it."""
ROUND_BYTES_MAX = 8 << 20


class Partition:
    """One queue and its MetaQ files. `next_offset` is the first message not in them."""

    __slots__ = ("next_offset", "queue", "segments", "topic")

    def __init__(self, topic: Topic, queue: ConsumeQueue, segments: MetaqSegments) -> None:
        self.topic, self.queue, self.segments = topic, queue, segments
        self.next_offset = queue.end


class Materialiser:
    """All partitions that have files of their own, by topic name and queue id."""

    def __init__(
        self, pool: FilePool, folder: Path, config: StoreConfig, records: LogRecords
    ) -> None:
        self._pool, self._folder, self._config, self._records = pool, folder, config, records
        self._by_key: dict[tuple[str, int], Partition] = {}
        self.verify = False
        """Files found from now on may be torn: the last stop was not in order."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_key.values())

    def get(self, topic: str, queue_id: int) -> MetaqSegments | None:
        """Return the files of a partition, if it has any."""
        partition = self._by_key.get((topic, queue_id))
        return partition.segments if partition is not None else None

    def open(self, topic: Topic, queue: ConsumeQueue, log_start: int) -> None:
        """Take a partition up: find its files, or begin them at the queue's end."""
        queue_id = queue.tail.queue_id
        folder = self._folder / f"{topic.name}-{queue_id}"
        size_max = self._config.metaq_segment_bytes_max
        segments = MetaqSegments(self._pool, folder, size_max, topic.birth)
        segments.load(verify=self.verify)
        partition = Partition(topic, queue, segments)
        self._by_key[topic.name, queue_id] = partition
        if not segments.exists:
            segments.begin(queue.tail.next_position)
            return
        segments.truncate(queue.tail.next_position)
        self._find_next(partition, log_start)

    def _find_next(self, partition: Partition, log_start: int) -> None:
        queue, segments = partition.queue, partition.segments
        low = queue.min_offset(log_start)
        found = queue.offset_of_position(segments.end, low)
        position = queue.position(found)[0] if found < queue.end else queue.tail.next_position
        if position != segments.end:
            # What lies between is gone from the log, so the old files would end in a hole.
            segments.begin(position)
        partition.next_offset = found

    def write_some(self, bytes_max: int = ROUND_BYTES_MAX) -> None:
        """Append what is new in the queues, up to about `bytes_max`."""
        for partition in self._by_key.values():
            while bytes_max > 0 and partition.next_offset < partition.queue.end:
                bytes_max -= self._write(partition)

    def write_all(self) -> None:
        """Append all that is new."""
        for partition in self._by_key.values():
            while partition.next_offset < partition.queue.end:
                self._write(partition)

    def _write(self, partition: Partition) -> int:
        """Write one block: up to the message that makes the file large enough."""
        queue, segments, start = partition.queue, partition.segments, partition.next_offset
        size_max = min(segments.room - 1, BLOCK_BYTES_MAX)
        _, whole, _ = whole_messages(queue, start, queue.end, size_max)
        count = min(whole + 1, queue.end - start)
        block = metaq_block(self._records.each(queue.units(start, count)))
        segments.append(block)
        partition.next_offset = start + count
        return len(block)

    def drop_topic(self, topic: str) -> None:
        """Remove the files of a topic."""
        for key in [key for key in self._by_key if key[0] == topic]:
            self._by_key.pop(key).segments.discard()

    def truncate(self) -> None:
        """Cut the files where their queues end now."""
        for partition in self._by_key.values():
            partition.segments.truncate(partition.queue.tail.next_position)
            partition.next_offset = min(partition.next_offset, partition.queue.end)

    def forget(self) -> None:
        """Let go of all partitions; their files stay."""
        self._by_key.clear()

    def expire(self, now_ms: int, log_start: int) -> None:
        """Remove files that are older or larger than their topic allows, or gone from the log."""
        for partition in self._by_key.values():
            segments, topic = partition.segments, partition.topic
            while len(starts := segments.starts()) > 1:
                newest = partition.queue.offset_of_position(starts[1], partition.queue.first) - 1
                if newest >= partition.queue.first:
                    place = partition.queue.unit(newest)[0]
                    if place >= log_start and not self._expired(topic, segments, place, now_ms):
                        break
                segments.drop_oldest()

    def _expired(self, topic: Topic, segments: MetaqSegments, place: int, now_ms: int) -> bool:
        age_max, size_max = topic.retention_ms, topic.retention_bytes
        if age_max is not None and now_ms - self._records.store_ms(place) > age_max:
            return True
        first_end = segments.starts()[1]
        return size_max is not None and segments.end - first_end >= size_max
