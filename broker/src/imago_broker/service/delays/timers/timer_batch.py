"""Timers that fire together, as they are taken off the wheel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.core.timers.timer_wheel import TimerRun
from imago_wire.record_format.layout import WAITING_PLACE

if TYPE_CHECKING:
    from imago_broker.core.timers.timer_wheel import Timer
    from imago_wire.hot import EntryRun
    from imago_wire.records.record import Entry


@dataclass(slots=True)
class TimerBatch:
    """Timers that fire by one append."""

    taken: list[TimerRun] = field(default_factory=list)
    fired: bytearray = field(default_factory=bytearray)
    """Where each entry was parked, as the firing record names it."""
    dropped: bytearray = field(default_factory=bytearray)
    entries: list[Entry | EntryRun] = field(default_factory=list)
    size: int = 0

    @property
    def count(self) -> int:
        """How many timers there are, those that are dropped as well."""
        return sum([run.length for run in self.taken])

    def add(self, timer: Timer, record: bytes, entry: Entry | None) -> None:
        """Take one more; without an entry it is dropped."""
        self.taken.append(TimerRun.of(timer))
        self.size += len(record)
        place = WAITING_PLACE.pack(timer.queue_id, timer.offset)
        if entry is None:
            self.dropped += place
        else:
            self.fired += place
            self.entries.append(entry)

    def add_run(self, run: TimerRun, messages: EntryRun) -> None:
        """Take several that need no closer look."""
        self.taken.append(run)
        self.fired += messages.places
        self.entries.append(messages)
        self.size += messages.end
