"""The newest open half messages, kept in memory: most are ended soon, and then need not be read."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.service.copies import StoredCopy
from imago_wire.record import ENTRY_BODY, ENTRY_PROPERTIES, PLACED_QUEUE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_wire.record import Entry, Placed

RECENT_BYTES_MAX = 32 << 20
OVERHEAD = 600
"""About what a message takes beside its body and properties."""


class RecentHalves:
    """By queue offset, in order; the oldest go when they are too many."""

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._halves: OrderedDict[int, tuple[Entry, Placed, int]] = OrderedDict()
        self.get = self._halves.get
        """Of one that is kept: its entry, where it was placed, and what it takes."""
        self._bytes_max = bytes_max
        self.bytes = 0

    def add(self, entry: Entry, placed: Placed) -> None:
        """Keep one, unless it alone is too large."""
        size = len(entry[ENTRY_BODY]) + len(entry[ENTRY_PROPERTIES]) + OVERHEAD
        self.bytes += size
        self._halves[placed[PLACED_QUEUE_OFFSET]] = (entry, placed, size)
        self._shrink()

    def add_all(self, halves: Iterable[tuple[Entry, Placed]]) -> None:
        """Keep some, as one after the other."""
        kept, total = self._halves, 0
        for half in halves:
            entry, placed = half
            size = len(entry[ENTRY_BODY]) + len(entry[ENTRY_PROPERTIES]) + OVERHEAD
            total += size
            kept[placed[PLACED_QUEUE_OFFSET]] = (entry, placed, size)
        self.bytes += total
        self._shrink()

    def _shrink(self) -> None:
        while self.bytes > self._bytes_max:
            _, (_, _, oldest) = self._halves.popitem(last=False)
            self.bytes -= oldest

    def drop_all(self, ended: Iterable[tuple[int, object]]) -> None:
        """Let go what has ended: their offsets, and how they did."""
        pop, free = self._halves.pop, 0
        for offset, _ in ended:
            gone = pop(offset, None)
            if gone is not None:
                free += gone[2]
        self.bytes -= free

    def drop(self, offset: int) -> None:
        """Let one go that has ended."""
        gone = self._halves.pop(offset, None)
        if gone is not None:
            self.bytes -= gone[2]


def copy_of(entry: Entry, placed: Placed) -> StoredCopy:
    """Return a half message as it would be read from the log; its times and host are not known."""
    _, body, properties, flag, sys_flag, born_ms, born_host, reconsume_times, *_ = entry
    queue_offset, physical_offset, size, *_ = placed
    return StoredCopy(
        size=size,
        topic=names.HALF_TOPIC,
        body=body,
        properties=properties,
        flag=flag,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=born_host,
        reconsume_times=reconsume_times,
        store_ms=0,
        store_host=b"",
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        unit_tag=None,
    )
