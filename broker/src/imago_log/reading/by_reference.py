"""Reads of light queues: a reference record leads to the message that stands in its own queue.

What a reference does not lead to is passed over as a lost message is: its topic was deleted, or
the log ends before it. A message counts only if it says itself that it has this offset in this
light queue, so nobody gets what was never put there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, cast

from imago_log.errors import UnreadableError
from imago_log.reading.by_offset import read_queue
from imago_log.results import ReadResult, ReadStatus
from imago_log.views.units.unit_files import LOST_SIZE_FIELD
from imago_wire.hot import view_record
from imago_wire.record_format.layout import UNIT
from imago_wire.record_format.references import Reference, offset_in, read_reference

if TYPE_CHECKING:
    from imago_log.commitlog.records import LogRecords
    from imago_log.reading.by_properties import Wanted
    from imago_log.reading.rereading import Rereader
    from imago_log.status import StoreStatus
    from imago_log.views.directory import QueueDirectory
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_log.views.units.visibility import Visibility
    from imago_wire.records.record import RecordView

REFERENCES_MAX: Final = 64
"""References that one read follows, whatever they lead to: each takes as long as some ten plain
messages, and all other clients wait meanwhile. The reader goes on where it ended."""
LOOKED_BYTES_MAX: Final = 4 << 20
"""Bytes of messages that one read looks at, unless one message is larger."""


class _Nothing(Enum):
    """Why there is no message at an offset."""

    UNWANTED = "unwanted"
    GONE = "gone"
    LATER = "later"
    """It may be read later: the reader comes again."""


class _Gathered:
    """What one read has found, and how far it may go."""

    __slots__ = ("_limits", "_looked", "_size", "_wanted", "end", "lost", "messages", "offsets")

    def __init__(self, end: int, limits: tuple[int, int], wanted: Wanted | None) -> None:
        self.end = end
        self.messages: list[bytes] = []
        self.offsets: list[int] = []
        self.lost = False
        self._limits, self._wanted = limits, wanted
        self._looked = self._size = 0

    def take(self, offset: int, message: bytes) -> bool:
        """Take what stands at an offset if it is wanted; False: it has no room any more."""
        if self._wanted is None or self._wanted.matches(_properties(message)):
            if self.messages and self._size + len(message) > self._limits[1]:
                return False
            self.messages.append(message)
            self.offsets.append(offset)
            self._size += len(message)
        self._looked += len(message)
        if len(self.messages) >= self._limits[0] or self._looked >= LOOKED_BYTES_MAX:
            self.end = offset + 1
        return True


@dataclass(slots=True, eq=False)
class ReferenceReader:
    """Reads light queues."""

    status: StoreStatus
    records: LogRecords
    directory: QueueDirectory
    visibility: Visibility
    rereader: Rereader

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
            return read_queue(queue, self.records, bounds, offset, limits, tags, wanted)
        gathered = _Gathered(min(high, offset + REFERENCES_MAX), limits, wanted)
        while offset < gathered.end:
            message = self._at(queue, offset, tags)
            if message is _Nothing.LATER:
                break
            if message is _Nothing.GONE:
                gathered.lost = True
            elif message is not _Nothing.UNWANTED and not gathered.take(offset, message):
                break
            offset += 1
        if gathered.messages:
            body = b"".join(gathered.messages)
            count, offsets = len(gathered.messages), tuple(gathered.offsets)
            return ReadResult(ReadStatus.FOUND, offset, low, high, count, body, offsets)
        status = ReadStatus.MESSAGE_WAS_REMOVING if gathered.lost else ReadStatus.NO_MATCHED_MESSAGE
        return ReadResult(status, offset, low, high)

    def _at(
        self, queue: ConsumeQueue, offset: int, tags: frozenset[int] | None
    ) -> bytes | _Nothing:
        """Return the message at an offset of a light queue: what is there, or is referred to."""
        unit = queue.unit(offset)
        if (lost := self._lost(unit)) is not None:
            return lost
        if tags is not None and unit[2] not in tags:
            return _Nothing.UNWANTED
        record = self.records.gather(queue.tail, UNIT.pack(*unit), offset, unit[1])
        reference = read_reference(_properties(record))
        if reference is None:
            return record
        return self._referred(queue, offset, view_record(record), reference)

    def _lost(self, unit: tuple[int, int, int]) -> _Nothing | None:
        """Return why the record of a unit cannot be read, or None."""
        place, size, _ = unit
        damage = self.records.damage
        if size != LOST_SIZE_FIELD and damage.at(place) is None:
            return None
        if damage.may_heal(place):
            return _Nothing.LATER
        damage.skip(place, 1)
        return _Nothing.GONE

    def _referred(
        self, queue: ConsumeQueue, offset: int, view: RecordView, reference: Reference
    ) -> bytes | _Nothing:
        target = self.directory.find(reference.topic, reference.queue_id)
        if target is None:
            return _Nothing.GONE
        low, high = self.visibility.bounds(target)
        at = _first_behind(target, (low, high), view.physical_offset, reference.offset)
        if at == high:
            settled = target.end == high and self.status.leading
            return _Nothing.GONE if settled else _Nothing.LATER

        def read() -> bytes | _Nothing:
            return self._verified(queue, offset, view, target, at)

        try:
            return read()
        except UnreadableError as error:
            later: object = _Nothing.LATER
            return cast("bytes | _Nothing", self.rereader.read(error, target, at, read, later))

    def _verified(
        self, queue: ConsumeQueue, offset: int, view: RecordView, target: ConsumeQueue, at: int
    ) -> bytes | _Nothing:
        """Return the message behind a reference if it says that it belongs there."""
        unit = target.unit(at)
        if (lost := self._lost(unit)) is not None:
            return lost
        message = self.records.gather(target.tail, UNIT.pack(*unit), at, unit[1])
        # One append has one time: what another one wrote there is another message.
        same = view_record(message).store_ms == view.store_ms
        name = queue.tail.topic.decode("utf-8", "replace")
        if not same or offset_in(_properties(message), name) != offset:
            return _Nothing.GONE
        return message


def _first_behind(target: ConsumeQueue, bounds: tuple[int, int], place: int, expected: int) -> int:
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
