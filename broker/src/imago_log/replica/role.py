"""A member of its shard: it leads, or it follows a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.errors import NoSpaceError, StaleEpochError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_log.replica.follower_log import FollowerLog
    from imago_log.signals import Signal
    from imago_log.state import StoreState
    from imago_log.writing.appender import Appender
    from imago_log.writing.write_behind import WriteBehind


class ReplicaRole:
    """Takes the roles of one store."""

    def __init__(
        self,
        s: StoreState,
        appender: Appender,
        follower: FollowerLog,
        write_behind: WriteBehind,
        on_metadata: Signal[Iterable[tuple[str, str]]],
    ) -> None:
        self._clock, self._status, self._pressure = s.clock, s.status, s.pressure
        self._log, self._epochs, self._watermark = s.log, s.epochs, s.watermark
        self._appender, self._follower, self._write_behind = appender, follower, write_behind
        self._on_metadata = on_metadata

    def lead(self, epoch: int) -> None:
        """Begin to append, in an epoch of its own that starts at the log's end.

        When it returns, the epoch is on the device. What the log has beyond the high watermark
        becomes visible at once: a former leader may have put it as a whole.
        StaleEpochError: it is not above every epoch seen; nothing has changed. NoSpaceError: the
        disk has no room to note it; the same.
        """
        epochs, log = self._epochs, self._log
        if epoch <= epochs.promised:
            raise StaleEpochError(epoch, epochs.promised)
        no_room = None
        with self._status.failing():
            try:
                epochs.lead(epoch, log.start, log.end)
            except NoSpaceError as error:
                no_room = error
        if no_room is not None:
            raise no_room
        self._watermark.keep_tail_whole()
        self._follower.begin_leading()
        self._status.lead()
        self._appender.begin()

    def follow(self, epoch: int) -> None:
        """Stop appending, and take nothing of an epoch below this one any more.

        When it returns, the promise is on the device. StaleEpochError: a higher one was promised.
        """
        epochs = self._epochs
        if epoch < epochs.promised:
            raise StaleEpochError(epoch, epochs.promised)
        self._status.follow()
        with self._status.failing():
            epochs.promise(epoch)
        self._watermark.lower_to(self._log.end)
        self._follower.begin_following()

    def append_replica(
        self, offset: int, data: bytes | memoryview, *, epoch: int, epoch_start: int
    ) -> int:
        """Take bytes of the leader's log that continue this one; return the new log end.

        `epoch` is the one in which these bytes were written, `epoch_start` where it starts: the
        leader sends no two of them together. What is whole is taken: records, and the rest of a
        file from its blank record on; a cut one at the end is not, so the next call begins at the
        returned offset. ReplicaGapError: they do not continue this log. CorruptRecordError: they
        are no records of this place. StaleEpochError: the epoch is below the log's last one, or
        above the promised one. DiskFullError. In each case nothing was taken, but for whole
        records before a record that does not fit its queue: `log_end` says.
        """
        self._status.check_open()
        if self._pressure.copy_refusal is not None:
            raise self._pressure.copy_refusal
        with self._status.failing():
            try:
                self._follower.take(offset, data, epoch, epoch_start)
            finally:
                changed = self._follower.changed()
                if changed:
                    self._on_metadata(changed)
            self._write_behind.run(self._clock())
        return self._log.end
