"""Files that go for want of room, before they have expired: which may, and what is told of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from imago_log.metadata.changes import LOG_FORCED, LOG_KIND, META_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.lifecycle.claims import Claims
    from imago_log.metadata.changes import Change
    from imago_log.metadata.state import Metadata
    from imago_log.signals import Signal
    from imago_log.views.queues.queues import Queues
    from imago_log.views.units.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

_META = META_TOPIC.encode()

QUEUES_LOOKED_MAX = 2000
"""Queues that one round asks about: each may be a search in its files."""
QUEUES_TOLD_MAX = 20
"""Queues that a log line names."""


class ForcedRange(NamedTuple):
    """Log offsets `start` … `end` that went before they had expired, the last of them `at_ms`."""

    start: int
    end: int
    at_ms: int
    messages: int


@dataclass(slots=True)
class ForcedCounts:
    """What has gone so on this member since the start."""

    bytes: int = 0
    messages: int = 0


def forced_range(metadata: Metadata) -> ForcedRange | None:
    """Return what went last for want of room, as the log says; None: nothing."""
    said = metadata.kind(LOG_KIND).get(LOG_FORCED)
    if not isinstance(said, list) or len(said) != len(ForcedRange._fields):
        return None
    return ForcedRange(*said) if all(type(part) is int for part in said) else None


class ReadThrough:
    """Whether everybody has read all messages before a log offset; looked at over many rounds."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._border = -1
        self._left: list[ConsumeQueue] = []

    def is_read(self, start: int, border: int, claims: Claims) -> bool:
        """Go on looking. A queue that somebody has not read is the first to be looked at again.

        `start`: where the log begins.
        """
        if border != self._border:
            self._border, self._left = border, list(self._queues)
        for _ in range(min(QUEUES_LOOKED_MAX, len(self._left))):
            if not _read(self._left[-1], start, border, claims):
                return False
            self._left.pop()
        return not self._left


def _read(queue: ConsumeQueue, start: int, border: int, claims: Claims) -> bool:
    end = queue.lookup.offset_of_log(border)
    if queue.lookup.min_offset(start) >= end:
        return True  # it has nothing there
    return claims.read_to(queue.tail.topic.decode(), queue.tail.queue_id) >= end


class ForcedDeletions:
    """Counts and tells what goes for want of room; on every member, when its files go."""

    def __init__(
        self,
        queues: Queues,
        metadata: Metadata,
        log: CommitLog,
        on_forced: Signal[ForcedRange, int],
    ) -> None:
        self.counts = ForcedCounts()
        self._queues, self._metadata, self._log = queues, metadata, log
        self._on_forced = on_forced

    def newest(self) -> ForcedRange | None:
        """Return what went last, in one piece, whatever has expired since."""
        went = forced_range(self._metadata)
        return went if went is not None and went.end <= self._log.start else None

    def last(self) -> ForcedRange | None:
        """Return what went last, if it is what was just below the log."""
        went = self.newest()
        return went if went is not None and went.end == self._log.start else None

    def to(self, end: int, now_ms: int) -> Change:
        """Say that the log goes up to there for want of room, in one piece with what went so."""
        before, start = forced_range(self._metadata), self._log.start
        messages = sum(count for _, _, count in self._held(start, end))
        if before is not None and before.end == start:
            start, messages = before.start, before.messages + messages
        return (LOG_KIND, LOG_FORCED, list(ForcedRange(start, end, now_ms, messages)))

    def note(self, forced: ForcedRange, files: int) -> None:
        """Tell of files that are about to go."""
        held = list(self._held(forced.start, forced.end))
        messages = sum(count for _, _, count in held)
        told = [
            f"{queue.tail.topic.decode()}-{queue.tail.queue_id}:{first}..{first + count}"
            for queue, first, count in held[:QUEUES_TOLD_MAX]
        ]
        more = f" and {len(held) - len(told)} more" if len(held) > len(told) else ""
        logger.warning(
            "log.deleted_for_room files=%d log_offsets=%d..%d messages=%d queues=%s%s: they had not"
            " expired; give the disk room, or shorten the retention",
            files,
            forced.start,
            forced.end,
            messages,
            ",".join(told),
            more,
        )
        self.counts.bytes += forced.end - forced.start
        self.counts.messages += messages
        self._on_forced(forced, messages)

    def _held(self, start: int, end: int) -> Iterator[tuple[ConsumeQueue, int, int]]:
        """Yield the queues with messages there, the first one's offset and how many."""
        for queue in self._queues:
            if queue.tail.topic == _META:
                continue  # said again in front of what stays
            first = queue.lookup.min_offset(start)
            count = queue.lookup.offset_of_log(end) - first
            if count > 0:
                yield queue, first, count
