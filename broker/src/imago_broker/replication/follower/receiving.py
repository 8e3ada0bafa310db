"""What a follower does with the log bytes that it is sent. No socket and no clock.

Frames may end in the middle of a record; the store takes whole records only, so the beginning of
one that is not whole yet waits here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.errors import LimitExceededError, ProtocolError

if TYPE_CHECKING:
    from imago_broker.replication.counters import ReplicationCounters
    from imago_log.store import MessageStore
    from imago_wire.replication.frames import Data

UNFINISHED_BYTES_MAX = 32 << 20
"""A record cannot be larger: twice the largest message."""


class Copy:
    """The follower's log as it grows behind the leader's."""

    def __init__(self, store: MessageStore, counters: ReplicationCounters) -> None:
        self._store = store
        self._counters = counters
        self._unfinished = b""
        self._unfinished_epoch = 0

    def take(self, frame: Data) -> None:
        """Write what is whole. ProtocolError: the frame does not continue what we have.

        Errors of the store pass: StoreError when it takes nothing of these bytes.
        """
        if not frame.data:
            return
        store, end = self._store, self._store.log_end
        expected = end + len(self._unfinished)
        if frame.offset != expected:
            raise ProtocolError(f"DATA at {frame.offset}, our log goes on at {expected}")
        if self._unfinished and frame.data_epoch != self._unfinished_epoch:
            raise ProtocolError(f"a record begins in epoch {self._unfinished_epoch} and ends later")
        data = b"".join((self._unfinished, frame.data)) if self._unfinished else frame.data
        written = store.append_replica(
            end, data, epoch=frame.data_epoch, epoch_start=frame.epoch_start
        )
        self._counters.bytes_taken += written - end
        self._keep(bytes(data[written - end :]), frame.data_epoch)

    def _keep(self, rest: bytes, epoch: int) -> None:
        if len(rest) > UNFINISHED_BYTES_MAX:
            raise LimitExceededError("record", size=len(rest), size_max=UNFINISHED_BYTES_MAX)
        self._unfinished, self._unfinished_epoch = rest, epoch
