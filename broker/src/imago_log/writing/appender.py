"""The put path: entries become records, records are written, and are readable at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.errors import DeadQueueError, LogIOError
from imago_wire.errors import LimitExceededError
from imago_wire.hot import EntryRun, RecordBuilder, entries_size_max
from imago_wire.record_format.entries import (
    ENTRY_BODY,
    ENTRY_BORN_HOST,
    ENTRY_PROPERTIES,
    ENTRY_TAIL,
)
from imago_wire.record_format.layout import (
    BLANK_SIZE,
    METAQ_EPOCH_MS,
    METAQ_ID_REST,
    METAQ_ID_TIME_AT,
)
from imago_wire.records.record import record_size

if TYPE_CHECKING:
    from imago_log.signals import Signal
    from imago_log.state import StoreState
    from imago_log.writing.write_behind import WriteBehind
    from imago_wire.record_format.entries import Entries
    from imago_wire.records.record import Placed


class Appender:
    """Writes entries to the log of a member that leads."""

    def __init__(self, s: StoreState, write_behind: WriteBehind, on_append: Signal[[]]) -> None:
        self._config, self._clock, self._status, self._pressure = (
            s.config,
            s.clock,
            s.status,
            s.pressure,
        )
        self._log, self._stamps, self._recent, self._keys = s.log, s.stamps, s.recent, s.keys
        self._metadata, self._write_behind, self._on_append = s.metadata, write_behind, on_append
        self._builder = RecordBuilder(
            s.config.store_host, s.config.metaq_broker_id, s.stamps.metaq_id
        )

    def begin(self) -> None:
        """Continue above the highest MetaQ id of the log, which may be another member's.

        Also above those that it gave out for later, by the time of the log's newest record.
        """
        stamps = self._stamps
        given_out = max(0, stamps.store_ms - METAQ_EPOCH_MS << METAQ_ID_TIME_AT | METAQ_ID_REST)
        self._builder.last_metaq_id = max(stamps.metaq_id, given_out)

    def take_metaq_id(self, above: int = 0) -> int:
        """Give out the id of a message that is put later, if ever: no other gets it."""
        builder = self._builder
        builder.last_metaq_id = max(builder.last_metaq_id, above)
        return builder.take_id(max(self._clock(), self._stamps.store_ms))

    def append(
        self, entries: Entries, *, sequenced: bool = False, whole: bool = False
    ) -> list[Placed]:
        """Write the entries in this order, in one call to the file; they are readable at once.

        `sequenced`: there may be messages of idempotent producers among them, see `producers`.
        `whole`: all of it is in one file, so that retention takes it at once.
        DiskFullError, StoreClosedError, NotLeadingError, DeadQueueError: nothing was appended.
        LimitExceededError: a record, or what stays whole, is larger than a log file; nothing was
        appended. LogIOError: stop the process.
        """
        if self._pressure.refusal is not None:
            raise self._pressure.refusal
        return self.write(entries, self._log.kept, sequenced=sequenced, whole=whole)

    def write(
        self, entries: Entries, leave: int, *, sequenced: bool = False, whole: bool = False
    ) -> list[Placed]:
        """Write entries; no full disk stops them while there is room for them in the log.

        DiskFullError: there is not, with so many bytes left in the last file.
        """
        status, log = self._status, self._log
        if status.barred:
            raise status.reason()
        store_ms = self._clock()
        if store_ms < self._stamps.store_ms:
            store_ms = self._stamps.store_ms  # never back, whatever the clock does
        size_max = entries_size_max(entries) + BLANK_SIZE
        if size_max < BLANK_SIZE:
            raise DeadQueueError
        if size_max + leave > log.room:
            self._make_room(entries, size_max, leave, whole=whole)
        start, builder = log.end, self._builder
        data, placed = builder.build(entries, 0, start, store_ms, log.room)
        try:
            if len(placed) == len(entries):
                log.write(data)
                self._written(start, data, sequenced)
            else:
                self._write_across(entries, data, placed, store_ms, sequenced)
            self._stamps.observe(store_ms, builder.last_metaq_id)
            if store_ms >= self._write_behind.next_ms:
                self._write_behind.run(store_ms)
        except LogIOError as error:
            status.fail(error)
            raise
        self._on_append()
        return placed

    def _make_room(self, entries: Entries, size_max: int, leave: int, *, whole: bool) -> None:
        """See to it that entries can be written; what stays whole may begin the next file."""
        log = self._log
        if whole and size_max > log.segment_size:
            limit = log.segment_size - BLANK_SIZE
            raise LimitExceededError("append", size=size_max - BLANK_SIZE, size_max=limit)
        if not (log.spares and size_max + leave < log.segment_size):
            log.reserve([size_max - BLANK_SIZE] if whole else self._sizes(entries), leave)
        if whole and size_max > log.room:
            try:
                log.roll(b"")
            except LogIOError as error:
                self._status.fail(error)
                raise

    def _written(self, start: int, data: bytes, sequenced: bool) -> None:
        """Notify the views that read appended bytes."""
        self._recent.add(start, data)
        if self._builder.with_properties:
            self._keys.add(start, data)
        else:
            self._keys.skip(start + len(data))
        if sequenced:
            self._metadata.producers.take(data, start)

    def _write_across(
        self,
        entries: Entries,
        data: bytes,
        placed: list[Placed],
        store_ms: int,
        sequenced: bool,
    ) -> None:
        """Write what fits into this file, then go on in the next one, as often as needed."""
        log = self._log
        while True:
            start = log.end
            last = len(placed) == len(entries)
            if last:
                log.write(data)
            else:
                log.roll(data)
            if data:
                self._written(start, data, sequenced)
            if last:
                return
            data, more = self._builder.build(entries, len(placed), log.end, store_ms, log.room)
            placed += more

    def _sizes(self, entries: Entries) -> list[int]:
        """Return upper bounds of the entries' record sizes."""
        store_host_size = len(self._config.store_host)
        return [
            entries_size_max([entry])
            if isinstance(entry, EntryRun)
            else record_size(
                len(entry[ENTRY_TAIL].topic),
                len(entry[ENTRY_PROPERTIES]),
                len(entry[ENTRY_BODY]),
                born_host_size=len(entry[ENTRY_BORN_HOST]),
                store_host_size=store_host_size,
            )
            for entry in entries
        ]
