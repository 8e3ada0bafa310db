"""Files that go for want of room, before they have expired: which may, and what is told of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from imago_log.metadata.changes import LOG_FORCED, LOG_KIND, META_TOPIC

if TYPE_CHECKING:
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.lifecycle.claims import Claims
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
    """Log offsets `start` … `end` that went before they had expired."""

    start: int
    end: int
    at_ms: int


@dataclass(slots=True)
class ForcedCounts:
    """What has gone so on this member since the start."""

    bytes: int = 0
    messages: int = 0


def forced_range(metadata: Metadata) -> ForcedRange | None:
    """Return what went last for want of room, as the log says; None: nothing."""
    said = metadata.kind(LOG_KIND).get(LOG_FORCED)
    if not isinstance(said, list) or len(said) != 3:
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

    def last(self) -> ForcedRange | None:
        """Return what went last, if it is what was just below the log."""
        went = forced_range(self._metadata)
        return went if went is not None and went.end == self._log.start else None

    def note(self, forced: ForcedRange, files: int) -> None:
        """Tell of files that are about to go."""
        told, messages = [], 0
        for queue in self._queues:
            if queue.tail.topic == _META:
                continue  # said again in front of what stays
            first = queue.lookup.min_offset(forced.start)
            end = queue.lookup.offset_of_log(forced.end)
            if first < end:
                messages += end - first
                told.append(f"{queue.tail.topic.decode()}-{queue.tail.queue_id}:{first}..{end}")
        more = f" and {len(told) - QUEUES_TOLD_MAX} more" if len(told) > QUEUES_TOLD_MAX else ""
        logger.warning(
            "log.deleted_for_room files=%d log_offsets=%d..%d messages=%d queues=%s%s: they had not"
            " expired; give the disk room, or shorten the retention",
            files,
            forced.start,
            forced.end,
            messages,
            ",".join(told[:QUEUES_TOLD_MAX]),
            more,
        )
        self.counts.bytes += forced.end - forced.start
        self.counts.messages += messages
        self._on_forced(forced, messages)
