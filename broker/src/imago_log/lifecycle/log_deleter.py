"""Deleting the log's oldest files: by age, by size, on a full disk, or because the leader says so.

What only the deleted files held is restated in the log first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_log.commitlog.watermark import ALL_VISIBLE
from imago_log.disk.files import fatal
from imago_log.errors import UnreadableError
from imago_log.lifecycle.forced import ForcedDeletions, ReadThrough, forced_range
from imago_log.lifecycle.retention import (
    FORCED,
    Limits,
    LogFile,
    files_to_delete,
    files_to_spare,
)
from imago_log.metadata.changes import LOG_KIND, LOG_START, QUEUE_KIND, queue_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_log.lifecycle.claims import Claims
    from imago_log.metadata.changes import Change
    from imago_log.state import StoreState
    from imago_log.writing.metadata_log import MetadataLog

QUEUES_OPENED_MAX = 200
"""Queues opened a round before files are deleted: each must have its end on record."""


class LogDeleter:
    """Deletes log files of one store. All methods belong to the store's thread."""

    def __init__(self, s: StoreState, metadata_log: MetadataLog, forced: ForcedDeletions) -> None:
        self.forced = forced
        self._read_through = ReadThrough(s.queues)
        self._force_unread = s.config.disk_force_unread
        self._vfs, self._log, self._damage, self._records = s.vfs, s.log, s.damage, s.records
        self._epochs, self._stamps, self._watermark = s.epochs, s.stamps, s.watermark
        self._checkpointer, self._status = s.checkpointer, s.status
        self._metadata, self._metadata_log = s.metadata, metadata_log
        self._queues, self._views, self._inspector = s.queues, s.views, s.inspector
        self._pressure, self._space, self._background = s.pressure, s.space, s.background
        self.keep(s.config.retention_ms, s.config.retention_bytes)
        self._newest_ms: dict[int, int] = {}
        self._seen_ms: dict[int, int] = {}
        """When each file was seen first that is no longer written."""
        self._follower_from = ALL_VISIBLE
        """Log offset from which on a follower still reads: such files stay while there is room."""

    def keep(self, retention_ms: int, retention_bytes: int) -> None:
        """Keep files for so long, and so many, from now on; 0: no limit of the kind."""
        self.limits = Limits(retention_ms=retention_ms, retention_bytes=retention_bytes)

    def keep_from(self, offset: int | None) -> None:
        """Keep the files from an offset on, which a follower still reads; None: nobody does."""
        self._follower_from = ALL_VISIBLE if offset is None else offset

    def expect_cut(self) -> None:
        """Forget the times of files: the log is about to be cut."""
        self._newest_ms.clear()

    def delete_old(self, now_ms: int, claims: Claims, *, due: bool = True) -> None:
        """Delete files that are too old or too many, and those that the leader deletes.

        `claims` are asked only when a file is about to go. A record of which something has to come
        stays, and all behind it, like what a follower still reads. What is too old waits until it
        is `due`. Above `disk_force_ratio` the oldest file goes before it expires, one a round; a
        follower does not keep it then, nor, with `disk_force_unread`, anybody else.
        """
        log = self._log
        if self._follow_log_start() or not self._status.leading:
            return
        safe = self._checkpointer.safe
        bases = [base for base in log.bases()[:-1] if base + log.segment_size <= safe]
        self._newest_ms = {base: ms for base, ms in self._newest_ms.items() if base in bases}
        # A clock that was ahead has left times of the future: no file is newer than first seen.
        self._seen_ms = {base: min(self._seen_ms.get(base, now_ms), now_ms) for base in bases}
        files = [LogFile(base, min(self._newest(base), self._seen_ms[base])) for base in bases]
        count = files_to_delete(
            files,
            file_size=log.segment_size,
            now_ms=now_ms,
            limits=self.limits if due else replace(self.limits, retention_ms=0),
        )
        if count:
            count -= files_to_spare(
                files,
                count,
                file_size=log.segment_size,
                needed_from=min(self._follower_from, claims.needed_from()),
            )
        force = not count and bool(bases) and self._pressure.level in FORCED
        if (count or force) and self._queues.open_some(self._metadata.topics, QUEUES_OPENED_MAX):
            start = bases[max(count, 1) - 1] + log.segment_size
            if count:
                self._begin_log_at(start)
            elif claims.may_force() and self._is_expendable(start, claims):
                self._begin_log_at(start, [self.forced.to(start, now_ms)])

    def _is_expendable(self, end: int, claims: Claims) -> bool:
        """Whether what ends there may go before it has expired."""
        if self._force_unread:
            return True
        return end <= claims.needed_from() and self._read_through.is_read(
            self._log.start, end, claims
        )

    def _begin_log_at(self, start: int, said: Sequence[Change] = ()) -> None:
        """Delete the files before an offset, at once or when all members know of it.

        `said`: what readers are told of it.
        """
        self._restate(start)
        self._metadata_log.put_again(list(said))
        if self._watermark.is_alone:
            self._delete_before(start)
        else:
            self._metadata_log.put_again([(LOG_KIND, LOG_START, start)])

    def _follow_log_start(self) -> bool:
        """Delete the files that the leader, or this member as leader, has recorded as going.

        Not before that is below the high watermark: what the deleted files said of topics and
        queues is restated just before it, and a cut must not take that away. True: it waits.
        """
        start = self._metadata.kind(LOG_KIND).get(LOG_START, 0)
        if start <= self._log.start:
            return False
        if self._metadata.end > self._watermark.visible or start > self._checkpointer.safe:
            return True
        if self._queues.open_some(self._metadata.topics, QUEUES_OPENED_MAX):
            self._delete_before(start)
        return True

    def _newest(self, base: int) -> int:
        """Return the store time of the first record of the next file."""
        if base not in self._newest_ms:
            log = self._log
            newest_ms = self._first_ms(base + log.segment_size)
            if newest_ms is None:
                return self._stamps.store_ms
            self._newest_ms[base] = newest_ms
        return self._newest_ms[base]

    def _first_ms(self, border: int) -> int | None:
        try:
            return self._records.first_ms(border)
        except UnreadableError as error:
            self._inspector.look(error.place)
            return None  # the next round knows

    def _delete_before(self, start: int) -> None:
        before, said = self._log.start, forced_range(self._metadata)
        paths = self._log.delete_before(start)
        if said is not None and before < said.end <= start:
            went = said._replace(start=max(said.start, before))
            self.forced.note(went, sum(int(path.name) < said.end for path in paths))
        with self._space.awaited():  # the files that stay are correct, and go the next time
            self._epochs.forget_before(start)
        self._damage.forget_before(start)
        for view in self._views:
            view.drop_before(start)
        checkpoint = self._checkpointer.now()

        def job() -> None:
            self._log.sync()  # restated metadata must be durable before the first statement goes
            with self._space.awaited():
                self._damage.save()
            self._checkpointer.write(checkpoint)  # then missing files are no damage
            for path in paths:
                with fatal("remove", path):
                    self._vfs.unlink(path)

        self._background.submit(job)

    def _restate(self, start: int) -> None:
        """Restate in the log what only its oldest files hold: metadata, ends of queues."""
        metadata = self._metadata
        if metadata.restated < start:
            here = self._log.end
            self._metadata_log.put_again(metadata.whole())
            metadata.note_restated(here)
        self._metadata_log.put_again(metadata.producers.statements(start))
        known = metadata.kind(QUEUE_KIND)
        ends = {
            queue_key(queue.tail.topic.decode(), queue.tail.queue_id): [
                queue.tail.next_offset,
                queue.tail.next_position,
            ]
            for queue in self._queues
            if queue.end and queue.lookup.ends_before(start)
        }
        self._metadata_log.put_again(
            [(QUEUE_KIND, key, end) for key, end in ends.items() if known.get(key) != end]
        )
