"""Reads by queue offset, log offset, time and key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from imago_log.errors import UnreadableError
from imago_log.reading import by_offset
from imago_log.results import ReadResult, ReadStatus
from imago_log.views.units.lost import is_lost
from imago_wire.hot import view_record
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from imago_log.reading.by_properties import Wanted
    from imago_log.reading.by_reference import ReferenceReader
    from imago_log.reading.remote import Remote
    from imago_log.reading.rereading import Rereader
    from imago_log.state import StoreState
    from imago_log.views.directory import QueueDirectory
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_wire.records.record import Placed


class MessageReader:
    """Reads messages as they are stored."""

    def __init__(
        self,
        s: StoreState,
        directory: QueueDirectory,
        rereader: Rereader,
        references: ReferenceReader,
    ) -> None:
        self._log, self._damage, self._records = s.log, s.damage, s.records
        self._watermark, self._visibility = s.watermark, s.visibility
        self._directory, self._keys, self._inspector = directory, s.keys, s.inspector
        self._rereader, self._references = rereader, references
        self._metadata = s.metadata
        self.remote: Remote | None = None
        """What of the queues comes before what is here; None: nothing."""

    def read_remote(self, remote: Remote) -> None:
        """Find there what comes before the log's start."""
        self.remote = remote

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest stored and the visible end queue offset; (0, 0) when unknown."""
        queue = self._directory.find(topic, queue_id)
        if queue is None:
            return 0, 0
        low, high = self._visibility.bounds(queue)
        if low and self.remote is not None and not queue.light:
            low = self.remote.low((topic, queue_id), self._incarnation(topic), low)
        return low, high

    def _incarnation(self, topic: str) -> int:
        return self._metadata.topic(topic).incarnation

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        messages_max: int,
        bytes_max: int,
        tags: frozenset[int] | None = None,
        wanted: Wanted | None = None,
    ) -> ReadResult:
        """Return records from a queue offset on, at least one if there is one to return.

        `tags`: signed 32-bit hashes of the wanted tags; None wants all. `wanted`, instead: which
        messages by their properties. Messages lost in damage of the log are passed over.
        """
        queue = self._directory.find(topic, queue_id)
        bounds = (0, 0) if queue is None else self._visibility.bounds(queue)
        if offset < bounds[0] and self.remote is not None and queue is not None and not queue.light:
            key, one = (topic, queue_id), self._incarnation(topic)
            limits = (messages_max, bytes_max)
            return self.remote.read(key, one, bounds, offset, limits, tags, wanted)
        limits = (messages_max, bytes_max)
        records = self._records
        try:
            if queue is not None and queue.light:
                return self._references.read(queue, bounds, offset, limits, tags, wanted)
            return by_offset.read_queue(queue, records, bounds, offset, limits, tags, wanted)
        except UnreadableError as error:
            low, high = bounds

            def read() -> ReadResult:
                again = (0, 0) if queue is None else self._visibility.bounds(queue)
                if queue is not None and queue.light:
                    return self._references.read(queue, again, offset, limits, tags, wanted)
                return by_offset.read_queue(queue, records, again, offset, limits, tags, wanted)

            later = ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, offset, low, high)
            return self._rereader.read(error, queue, max(offset, low), read, later)

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the whole record that starts there, or None: there is none, or not visible.

        Its queue must know it, so that of a deleted topic is found no more: a body may hold what
        looks like a record of its own place.
        """
        if physical_offset >= self._watermark.value:
            return None
        if physical_offset < self._log.start and self.remote is not None:
            return self.remote.record_at(physical_offset)
        found = self._records.whole(physical_offset)
        if found is None:
            if self._log.start <= physical_offset < self._log.end:
                self._inspector.look(physical_offset)
            return None
        return found if self._directory.names(view_record(found)) else None

    def offset_by_time(self, topic: str, queue_id: int, ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at or after `ms`; `upper`: the last at or before it.

        RemoteMissError, RemoteAwayError: it is in the bucket, ask again.
        """
        queue = self._directory.find(topic, queue_id)
        if queue is None:
            return 0
        bounds = self._visibility.bounds(queue)
        records = self._records
        read = partial(by_offset.offset_by_time, queue, records, bounds, ms, upper=upper)
        try:
            found = read()
        except UnreadableError as error:
            found = self._rereader.read(error, queue, bounds[0], read)
        if found == bounds[0] > 0 and self.remote is not None and not queue.light:
            return self._remote_by_time(topic, queue, bounds, ms, upper=upper)
        return found

    def _remote_by_time(
        self, topic: str, queue: ConsumeQueue, bounds: tuple[int, int], ms: int, *, upper: bool
    ) -> int:
        """Return the same where the first message here may not be the first of that time."""
        assert self.remote is not None, "the caller has looked"
        here, high = bounds
        first_ms = self._store_time(queue, here) if here < high else None
        if upper and first_ms is not None and first_ms <= ms:
            return here
        key, one = (topic, queue.tail.queue_id), self._incarnation(topic)
        return self.remote.offset_by_time(key, one, ms, here, upper=upper)

    def placed(self, topic: str, queue_id: int, offset: int, count: int) -> list[Placed]:
        """Return where `count` stored messages from a queue offset on are, as `append` told it.

        Without their MetaQ positions and ids; empty where the queue no longer knows all of them.
        """
        queue = self._directory.find(topic, queue_id)
        if queue is None or offset < queue.first or offset + count > queue.end:
            return []
        units = UNIT.iter_unpack(queue.units(offset, count))
        return [(offset + i, place, size, -1, -1) for i, (place, size, _) in enumerate(units)]

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        """Return up to `count` visible units from a queue offset on, 20 bytes each (`UNIT`)."""
        queue = self._directory.find(topic, queue_id)
        if queue is None:
            return b""
        low, high = self._visibility.bounds(queue)
        if not low <= offset < high:
            return b""
        return queue.units(offset, min(count, high - offset))

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the store time of one message in epoch milliseconds, or None."""
        queue = self._directory.find(topic, queue_id)
        if queue is None:
            return None
        low, high = self._visibility.bounds(queue)
        if not low <= offset < high:
            return None
        read = partial(self._store_time, queue, offset)
        try:
            return read()
        except UnreadableError as error:
            return self._rereader.read(error, queue, offset, read)

    def glanced_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return what a message's head says of its store time, or None: good for an order alone."""
        for _, place, *_ in self.placed(topic, queue_id, offset, 1):
            return self._records.glanced_ms(place)
        return None

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int | None:
        place, size, _ = queue.unit(offset)
        lost = is_lost(self._damage, place, size)
        return None if lost else self._records.store_ms(place, offset)

    def find_key(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        count_max: int,
        *,
        bytes_max: int | None = None,
    ) -> list[bytes]:
        """Return whole records whose KEYS or UNIQ_KEY holds the key, oldest first.

        Of more than `count_max`, or than fit into `bytes_max`, the newest: at least one.
        """
        places = (self._log.start, self._watermark.visible)
        times = (begin_ms, end_ms)
        wanted = (topic, key)
        limits = (count_max, bytes_max)
        return by_offset.find_key(self._keys, self._records, wanted, places, times, limits)
