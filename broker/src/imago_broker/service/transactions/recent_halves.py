"""The newest open half messages, kept in memory: most are ended soon, and then need not be read."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.service.puts.copies import StoredCopy
from imago_wire.remoting.scanning.halves import kept_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_wire.hot import Half
    from imago_wire.record_format.entries import Entry

RECENT_BYTES_MAX = 32 << 20
OVERHEAD = 600
"""About what a message takes beside its body and properties."""
SPARE = 1000
"""Places of half messages that are kept no more, beside as many as are kept."""


class RecentHalves:
    """Which half messages have their entry at hand; the oldest lose it when they are too many."""

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._halves: deque[Half] = deque()
        """In order, and among them such as have none any more."""
        self._bytes_max = bytes_max
        self._kept = self._size = 0

    @property
    def bytes(self) -> int:
        """About what they take."""
        return self._size + self._kept * OVERHEAD

    def add(self, half: Half, entry: Entry) -> None:
        """Keep one, unless it alone is too large."""
        half.entry = entry
        self.add_all([half], kept_size(entry))

    def add_all(self, halves: Sequence[Half], size: int) -> None:
        """Keep some that have their entries, of so many bytes, as one after the other."""
        recent = self._halves
        recent += halves
        self._kept += len(halves)
        self._size += size
        while self.bytes > self._bytes_max:
            self.drop(recent.popleft())
        if len(recent) > 2 * self._kept + SPARE:
            self._halves = deque([half for half in recent if half.entry is not None])

    def drop(self, half: Half) -> None:
        """Let one go."""
        if half.entry is not None:
            self.have_left(1, kept_size(half.entry))
            half.entry = None

    def have_left(self, kept: int, size: int) -> None:
        """Say that so many have no entry any more, which took so many bytes."""
        self._kept -= kept
        self._size -= size


def copy_of(half: Half, entry: Entry) -> StoredCopy:
    """Return a half message as it would be read from the log; its times and host are not known."""
    _, body, properties, flag, sys_flag, born_ms, born_host, reconsume_times, *_ = entry
    return StoredCopy(
        size=0,
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
        queue_offset=half.offset,
        physical_offset=half.physical_offset,
        unit_tag=None,
    )
