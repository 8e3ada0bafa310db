"""Reads of light queues: a reference record leads to the message that stands in its own queue.

What a reference does not lead to is passed over as a lost message is: its topic was deleted, or
the log ends before it. A message counts only if it says itself that it has this offset in this
light queue, so nobody gets what was never put there.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from imago_log.errors import UnreadableError
from imago_log.reading.by_offset import FILTERED_UNITS_MAX, read_queue
from imago_log.results import ReadResult, ReadStatus
from imago_log.views.unit_files import LOST_SIZE_FIELD
from imago_wire.hot import view_record
from imago_wire.layout import UNIT
from imago_wire.references import Reference, offset_in, read_reference

if TYPE_CHECKING:
    from imago_log.commitlog.records import LogRecords
    from imago_log.reading.by_properties import Wanted
    from imago_log.reading.rereading import Rereader
    from imago_log.status import StoreStatus
    from imago_log.views.consume_queue import ConsumeQueue
    from imago_log.views.directory import QueueDirectory
    from imago_log.views.visibility import Visibility
    from imago_wire.hot import RecordView

UNITS_AT_ONCE: Final = 64
LOOKED_BYTES_MAX: Final = 4 << 20
"""Bytes of messages that one read looks at, unless one message is larger."""


class _Nothing(Enum):
    """Why a reference leads to no message."""

    GONE = "gone"
    LATER = "later"
    """It may be read later: the reader comes again."""


class _Found:
    """What one read has found so far."""

    __slots__ = ("bytes", "messages", "offsets", "size")

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.offsets: list[int] = []
        self.size = self.bytes = 0

    def add(self, offset: int, message: bytes) -> None:
        """Take a message that stands at this offset of the light queue."""
        self.messages.append(message)
        self.offsets.append(offset)
        self.size += len(message)


class ReferenceReader:
    """Reads light queues."""

    def __init__(
        self,
        status: StoreStatus,
        records: LogRecords,
        directory: QueueDirectory,
        visibility: Visibility,
        rereader: Rereader,
    ) -> None:
        self._status, self._records = status, records
        self._directory, self._visibility, self._rereader = directory, visibility, rereader

    def read(
        self,
        queue: ConsumeQueue,
        bounds: tuple[int, int],
        offset: int,
        limits: tuple[int, int],
        tags: frozenset[int] | None,
        wanted: Wanted | None,
    ) -> ReadResult:
        """Read from one light queue as `read_queue` does, messages in place of references."""
        low, high = bounds
        if not low <= offset < high:
            return read_queue(queue, self._records, bounds, offset, limits, tags, wanted)
        found, lost, damage = _Found(), False, self._records.damage
        end = min(high, offset + max(FILTERED_UNITS_MAX, limits[0]))
        while offset < end:
            unit = queue.unit(offset)
            place, size, tag = unit
            if size == LOST_SIZE_FIELD or damage.at(place) is not None:
                if damage.may_heal(place):
                    break  # the reader comes again
                damage.skip(place, 1)
                lost = True
            elif tags is None or tag in tags:
                message = self._message(queue, offset, unit)
                if message is _Nothing.LATER:
                    break
                if message is _Nothing.GONE:
                    lost = True
                elif wanted is None or wanted.matches(_properties(message)):
                    if found.messages and found.size + len(message) > limits[1]:
                        break
                    found.add(offset, message)
                    if len(found.messages) >= limits[0]:
                        end = offset + 1
                if not isinstance(message, _Nothing):
                    found.bytes += len(message)
                    if found.bytes >= LOOKED_BYTES_MAX:
                        end = offset + 1
            offset += 1
        if found.messages:
            body = b"".join(found.messages)
            count, offsets = len(found.messages), tuple(found.offsets)
            return ReadResult(ReadStatus.FOUND, offset, low, high, count, body, offsets)
        status = ReadStatus.MESSAGE_WAS_REMOVING if lost else ReadStatus.NO_MATCHED_MESSAGE
        return ReadResult(status, offset, low, high)

    def _message(
        self, queue: ConsumeQueue, offset: int, unit: tuple[int, int, int]
    ) -> bytes | _Nothing:
        """Return the message at an offset of a light queue: what is there, or is referred to."""
        record = self._records.gather(queue.tail, UNIT.pack(*unit), offset, unit[1])
        reference = read_reference(_properties(record))
        if reference is None:
            return record
        return self._referred(queue, offset, view_record(record), reference)

    def _referred(
        self, queue: ConsumeQueue, offset: int, view: RecordView, reference: Reference
    ) -> bytes | _Nothing:
        target = self._directory.find(reference.topic, reference.queue_id)
        if target is None:
            return _Nothing.GONE
        low, high = self._visibility.bounds(target)
        at = _first_behind(target, (low, high), view.physical_offset, reference.offset)
        if at == high:
            settled = target.end == high and self._status.leading
            return _Nothing.GONE if settled else _Nothing.LATER

        def read() -> bytes | _Nothing:
            return self._verified(queue, offset, view, target, at)

        try:
            return read()
        except UnreadableError as error:
            return self._rereader.read(error, target, at, read, _Nothing.LATER)

    def _verified(
        self, queue: ConsumeQueue, offset: int, view: RecordView, target: ConsumeQueue, at: int
    ) -> bytes | _Nothing:
        """Return the message behind a reference if it says that it belongs there."""
        place, size, tag = target.unit(at)
        damage = self._records.damage
        if size == LOST_SIZE_FIELD or damage.at(place) is not None:
            if damage.may_heal(place):
                return _Nothing.LATER
            damage.skip(place, 1)
            return _Nothing.GONE
        message = self._records.gather(target.tail, UNIT.pack(place, size, tag), at, size)
        # One append has one time: what another one wrote there is another message.
        same = view_record(message).store_ms == view.store_ms
        name = queue.tail.topic.decode("utf-8", "replace")
        if not same or offset_in(_properties(message), name) != offset:
            return _Nothing.GONE
        return message


def _first_behind(
    target: ConsumeQueue, bounds: tuple[int, int], place: int, expected: int
) -> int:
    """Return the offset of the first message behind a log offset; it is likely the expected."""
    low, high = bounds
    if (
        low <= expected < high
        and target.unit(expected)[0] > place
        and (expected == low or target.unit(expected - 1)[0] < place)
    ):
        return expected
    return target.lookup.search(low, high, lambda offset: target.unit(offset)[0] < place)


def _properties(record: bytes) -> bytes:
    view = view_record(record)
    return record[view.properties_at : view.properties_at + view.properties_size]
