"""Timers that fire together, as they are taken off the wheel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.core.timer_wheel import Timer
    from imago_wire.record import Entry


@dataclass(slots=True)
class TimerBatch:
    """Timers that fire by one append."""

    taken: list[Timer] = field(default_factory=list)
    fired: list[tuple[int, int]] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    size: int = 0

    def add(self, timer: Timer, record: bytes, entry: Entry | None) -> None:
        """Take one more; without an entry it is dropped."""
        self.taken.append(timer)
        self.size += len(record)
        if entry is None:
            self.dropped.append((timer.queue_id, timer.offset))
        else:
            self.fired.append((timer.queue_id, timer.offset))
            self.entries.append(entry)

    def add_run(
        self,
        timers: Sequence[Timer],
        places: Sequence[tuple[int, int]],
        entries: Sequence[Entry],
        size: int,
    ) -> None:
        """Take several that all have their entries."""
        self.taken += timers
        self.fired += places
        self.entries += entries
        self.size += size
