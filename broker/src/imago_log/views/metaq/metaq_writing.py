"""Writing MetaQ's files of one partition: which messages come next, and a round of the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.disk.files import fatal, write_all
from imago_log.errors import CorruptLogError
from imago_log.views.metaq.metaq_batch import first_messages
from imago_wire.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from imago_log.commitlog.records import LogRecords
    from imago_log.disk.vfs import Vfs
    from imago_log.errors import StoreError
    from imago_log.metadata.changes import Topic
    from imago_log.views.metaq.metaq_segments import MetaqSegments
    from imago_log.views.units.consume_queue import ConsumeQueue

BLOCK_BYTES_MAX = 256 << 10
"""Written in one call, but for the last message in it."""


class Partition:
    """One queue and its MetaQ files. `next_offset` is the first message not in them."""

    __slots__ = ("next_offset", "queue", "segments", "topic")

    def __init__(self, topic: Topic, queue: ConsumeQueue, segments: MetaqSegments) -> None:
        self.topic, self.queue, self.segments = topic, queue, segments
        self.next_offset = queue.end

    @property
    def behind(self) -> int:
        """Bytes that the files do not have yet."""
        end = self.segments.end
        if not self.segments.exists and self.next_offset < self.queue.end:
            end = self.queue.position(self.next_offset)[0]
        return self.queue.tail.next_position - end


class MetaqBlock(NamedTuple):
    """Messages that are written in one call, and where: decided before they are read."""

    partition: Partition
    offset: int
    """Queue offset of the first of them."""
    units: bytes
    position: int
    size: int
    path: Path
    at: int
    following: Path | None
    """The file to make when these have filled theirs."""


class WritingJob:
    """One round of writing, for the worker. `done` is set last."""

    def __init__(
        self,
        vfs: Vfs,
        records: LogRecords,
        blocks: Sequence[MetaqBlock],
        rest: Callable[[], None] | None = None,
    ) -> None:
        """`rest` is called behind each block; None: there is no time to."""
        self._vfs, self._records, self.blocks, self._rest = vfs, records, blocks, rest
        self.written = 0
        """Blocks, the first ones, that are in their files."""
        self.damage: StoreError | RecordError | None = None
        """Why the block after them cannot be made."""
        self._cancelled = self.done = False

    def cancel(self) -> None:
        """Stop behind the block at hand; in any thread."""
        self._cancelled = True

    def run(self) -> None:
        try:
            self._run()
        finally:
            self.done = True

    def _run(self) -> None:
        for block in self.blocks:
            if self._cancelled:
                break
            try:
                data = self._records.metaq(
                    block.partition.queue.tail,
                    block.units,
                    block.offset,
                    (block.position, block.position + block.size),
                    block.size,
                )
            except (CorruptLogError, RecordError) as error:
                self.damage = error
                break
            self._write(block, data)
            self.written += 1
            if self._rest is not None:
                self._rest()

    def _write(self, block: MetaqBlock, data: bytes) -> None:
        vfs = self._vfs
        with fatal("open", block.path):
            fd = vfs.open(block.path)
        try:
            write_all(vfs, fd, data, block.at, block.path)
        finally:
            vfs.close(fd)
        if block.following is not None:
            with fatal("create", block.following):
                vfs.close(vfs.open(block.following, create=True))


def place_of(block: MetaqBlock) -> int:
    """Return the log offset of a block's first record."""
    return int.from_bytes(block.units[:8], "big")


def next_blocks(partition: Partition, last: int, bytes_max: int) -> Iterator[MetaqBlock]:
    """Yield what to write next: each up to the message that makes its file large enough."""
    queue, segments, offset = partition.queue, partition.segments, partition.next_offset
    start, end = segments.file_start, segments.end
    while bytes_max > 0 and offset < last:
        room = start + segments.size_max - end
        whole = first_messages(queue, offset, last, min(room - 1, BLOCK_BYTES_MAX)).messages
        count = min(whole + 1, last - offset)
        position, last_size = queue.position(offset + count - 1)
        size = position + last_size - end
        full = end + size - start >= segments.size_max
        following = segments.path(end + size) if full else None
        units = queue.units(offset, count)
        path = segments.path(start)
        yield MetaqBlock(partition, offset, units, end, size, path, end - start, following)
        offset, end, bytes_max = offset + count, end + size, bytes_max - size
        start = end if full else start
