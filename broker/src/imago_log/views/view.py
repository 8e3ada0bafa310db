"""What every view of the log can do, so that whoever changes the log goes through all of them.

Their order is that of `state.Views`. All but what is said to be the worker's belongs to the store's
thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_log.disk.files import Unsynced
    from imago_wire.hot import QueueTail
    from imago_wire.records.record import RecordView

QueueKey = tuple[bytes, int]
"""Topic and queue id."""


class SyncPlan(NamedTuple):
    """What a view needs synced, for the worker."""

    files: Iterable[Unsynced]
    """The worker goes through it: there may be thousands."""
    mark: Callable[[], None] | None = None
    """What the worker notes in the view's files once all are on the device."""
    note: Callable[[], None] | None = None
    """What is known then; in the store's thread."""


class LogBlock(NamedTuple):
    """Whole records that follow one another in the log."""

    start: int
    size: int
    units: dict[QueueKey, tuple[int, QueueTail]]
    """By queue: the first queue offset, and the units from it on."""


class ViewComparison(Protocol):
    """Compares one view with a part of the log that the worker reads."""

    def read(self, block: LogBlock, data: bytes, /) -> None:
        """Note what the view should hold of these records; in the worker."""

    def mend(self, blocks: list[LogBlock], /) -> int:
        """Put right what differs, of records that the log still has; return how much it was."""
        ...


class View(Protocol):
    """Derived from the log, in memory and in files: all of it can be made again."""

    def add(self, data: bytes, log_offset: int, records: list[RecordView], /) -> None:
        """Take whole records that a start reads again: those in it already change nothing."""

    def truncate(self, end: int, /) -> None:
        """Forget what records at or after a log offset gave it."""

    def drop_before(self, start: int, /) -> None:
        """Let go of what records before a log offset gave it, as far as nothing else needs it."""

    def drop_topic(self, topic: str, /) -> None:
        """Forget a topic and remove its files."""

    def reset(self, start: int, /) -> None:
        """Drop everything and begin with nothing at a log offset."""

    def rebuild(self, start: int, /) -> None:
        """Forget everything: the records from the log's start on are about to be added."""

    def lower_mark(self, end: int, /) -> None:
        """Promise no more than what stays when the log is cut; the checkpoint is written next."""

    def write_all(self) -> None:
        """Write what is in memory to the files."""

    def is_synced(self, end: int, /) -> bool:
        """Whether all that records below the log's end gave it is on the device."""
        ...

    def plan_sync(self, end: int, /) -> SyncPlan:
        """Return what to sync so that it is. NoSpaceError: there is no room for it yet."""
        ...

    def compare(self) -> ViewComparison | None:
        """Return what compares it with the log; None: there is nothing to compare now."""
