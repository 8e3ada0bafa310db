"""What one follower is sent of the log, and how much of it at once. No socket, no clock of its own.

A cursor walks along the leader's log. Bytes that are in memory are handed over as they are; a
follower that is far behind gets them from the files, in larger pieces. Frames end where an epoch
ends, at the window, and at what one loop turn may cost the leader's producers.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from imago_wire.replication.encoder import data_header
from imago_wire.replication.frames import Flags

if TYPE_CHECKING:
    from imago_broker.replication.counters import ReplicationCounters
    from imago_broker.replication.links.link import Link
    from imago_log.store import MessageStore
    from imago_wire.replication.frames import Epochs

WINDOW_BYTES = 8 << 20
"""Most bytes sent and not acknowledged, unless one record is larger: what a follower may have to
take in one go."""
FRAME_BYTES = 1 << 20
TURN_BYTES = 2 << 20
"""Most bytes given to the kernel for one follower in one loop turn."""
FAR_BYTES = 4 << 20
"""Behind the end by more than this the bytes come from the files."""


def epoch_at(epochs: Epochs, offset: int) -> tuple[int, int, int | None]:
    """Return epoch, start and end of the part of the log in which the byte at `offset` lies.

    The end is None in the newest epoch. LookupError: the epochs begin behind the offset.
    """
    at = bisect_right(epochs, offset, key=lambda pair: pair[1]) - 1
    if at < 0:
        raise LookupError(f"log offset {offset} is before the first epoch")
    epoch, start = epochs[at]
    return epoch, start, epochs[at + 1][1] if at + 1 < len(epochs) else None


class Allowance:
    """A rate in bytes a second, as a bucket of one second. Time is an argument."""

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._left = float(bytes_per_second)
        self._at_ms = 0

    def take(self, wanted: int, now_ms: int) -> int:
        """Return how many of the wanted bytes may go now, and count them; 0: none."""
        if not self._rate:
            return wanted
        gained = self._rate * (now_ms - self._at_ms) / 1000
        self._left = min(float(self._rate), self._left + gained)
        self._at_ms = now_ms
        taken = min(wanted, int(self._left))
        self._left -= taken
        return taken


class SendCursor:
    """Where one follower's copy goes on, and what is on its way to it."""

    def __init__(
        self,
        store: MessageStore,
        link: Link,
        *,
        epoch: int,
        offset: int,
        allowance: Allowance,
        counters: ReplicationCounters,
    ) -> None:
        self.next = offset
        """Log offset of the next byte to be sent."""
        self.acked = offset
        """End of the follower's log as it said last."""
        self.durable = 0
        """Durable end of the follower's log as it said last."""
        self.high_watermark = -1
        """The high watermark that it received last."""
        self.sent_ms = 0
        """When anything was sent last."""
        self._store = store
        self._link = link
        self._epoch = epoch
        self._allowance = allowance
        self._counters = counters

    @property
    def behind(self) -> int:
        """How many bytes of the log the follower has not acknowledged."""
        return max(0, self._store.log_end - self.acked)

    def push(self, now_ms: int, *, sync: bool) -> bool:
        """Send what may be sent now; return whether the next turn could go on at once.

        LookupError: the log no longer has what the follower needs, or its epochs do not say who
        wrote it. `sync`: have the follower sync what it gets.
        """
        link, budget = self._link, TURN_BYTES
        while budget > 0 and not link.pending:
            size = min(self._wanted(), budget)
            if size <= 0:
                break
            sent = self._send(size, now_ms, sync=sync)
            if not sent:
                return False  # its rate is used up: the next tick goes on
            budget -= sent
            link.flush()
        return budget <= 0 and not link.pending and self._wanted() > 0

    def beat(self, now_ms: int, *, sync: bool) -> None:
        """Say that we live, and where the high watermark is, unless something is on its way."""
        if self._link.pending:
            return
        epoch, start, _ = epoch_at(self._store.epochs, max(self.next - 1, self._store.log_start))
        self._link.send(self._header(self.next, epoch, start, 0, sync=sync))
        self._link.flush()
        self.sent_ms = now_ms

    def _wanted(self) -> int:
        sent = self.next - self.acked
        room = WINDOW_BYTES - sent
        if room <= 0:
            # A follower acknowledges whole records: the first one has to arrive in full.
            room = self._size_at(self.acked) - sent
        return min(self._store.log_end - self.next, room, FRAME_BYTES)

    def _size_at(self, border: int) -> int:
        """Return the size of the record, or of the rest of the file, that begins at a border."""
        return int.from_bytes(self._store.read_log(border, 4), "big")

    def _send(self, size: int, now_ms: int, *, sync: bool) -> int:
        store, offset = self._store, self.next
        epoch, start, end = epoch_at(store.epochs, offset)
        if end is not None:
            size = min(size, end - offset)
        if store.log_end - offset > FAR_BYTES:
            size = self._allowance.take(size, now_ms)
            if not size:
                return 0
            part = store.log_slice(offset, size)
            size = part.size
            self._link.send(self._header(offset, epoch, start, size, sync=sync))
            self._link.send_file(part)
            self._counters.bytes_caught_up += size
        else:
            data = store.read_log(offset, size)
            size = len(data)
            self._link.send(self._header(offset, epoch, start, size, sync=sync), data)
        self.next = offset + size
        self._counters.bytes_sent += size
        self.sent_ms = now_ms
        return size

    def _header(self, offset: int, epoch: int, start: int, size: int, *, sync: bool) -> bytes:
        self.high_watermark = self._store.high_watermark
        return data_header(
            epoch=self._epoch,
            offset=offset,
            data_epoch=epoch,
            epoch_start=start,
            high_watermark=self.high_watermark,
            leader_end=self._store.log_end,
            size=size,
            flags=Flags.SYNC if sync else Flags.NONE,
        )
