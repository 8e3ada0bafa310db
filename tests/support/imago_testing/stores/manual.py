"""A store without files, whose progress a test moves by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_log.signals import Signal
from imago_wire.errors import LimitExceededError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_wire.records.record import Entry, Placed, QueueTail


class ManualStore:
    """What the services need of `imago_log.MessageStore`, in memory.

    Every message takes 100 bytes of log. `durable_end` and `high_watermark` stay where they are
    until `sync_to` or `replicate_to` moves them.
    """

    def __init__(self) -> None:
        self.log_end = 0
        self.durable_end = 0
        self.high_watermark = 0
        self.leading = True
        self.on_durable: Signal[int] = Signal()
        self.appended: list[list[Entry]] = []
        """The entries of each append."""
        self.whole: list[tuple[int, int]] = []
        """What readers see at once, by log offsets."""
        self.syncs_requested = 0
        self.record_bytes_max = 1 << 20
        """Of a body here."""
        self.fail_with: Exception | None = None
        """Raised by the next append, which then appends nothing."""
        self.refused_tails: dict[QueueTail, Exception] = {}
        """Raised by an append to one of these queues, which then appends nothing."""
        self.metadata: dict[str, dict[str, Any]] = {}
        self.meta_writes: list[list[tuple[str, str, Any]]] = []
        self.on_meta: Callable[[], None] = lambda: None
        """Called after each metadata write."""
        self.topic_values: dict[str, dict[str, Any]] = {}
        self.materialised: list[str] = []

    def append(
        self, entries: Sequence[Entry], *, sequenced: bool = False, whole: bool = False
    ) -> list[Placed]:
        del sequenced, whole
        if self.fail_with is not None:
            error, self.fail_with = self.fail_with, None
            raise error
        for entry in entries:
            if (refusal := self.refused_tails.get(entry[0])) is not None:
                raise refusal
            if len(entry[1]) > self.record_bytes_max:
                size = len(entry[1])
                raise LimitExceededError("record", size=size, size_max=self.record_bytes_max)
        self.appended.append(list(entries))
        placed: list[Placed] = []
        for entry in entries:
            tail = entry[0]
            placed.append((tail.next_offset, self.log_end, 100, tail.next_position, 7))
            tail.next_offset += 1
            tail.next_position += 20 + len(entry[1])
            self.log_end += 100
        return placed

    def keep_whole(self, start: int, end: int) -> None:
        self.whole.append((start, end))

    def request_sync(self, *, urgent: bool = True) -> None:
        assert urgent, "those who wait for it ask"
        self.syncs_requested += 1

    def sync_to(self, end: int) -> None:
        """Let the disk have everything below `end`, and say so as the flusher does."""
        self.durable_end = end
        self.on_durable(end)

    def replicate_to(self, end: int) -> None:
        """Let the other members have everything below `end`."""
        self.high_watermark = end

    def topics(self) -> Mapping[str, dict[str, Any]]:
        return self.topic_values

    def create_topic(self, name: str, value: Mapping[str, Any]) -> None:
        self.topic_values[name] = dict(value)

    def delete_topic(self, name: str) -> None:
        del self.topic_values[name]

    def set_materialised(self, topic: str) -> None:
        self.materialised.append(topic)

    def meta(self, kind: str) -> Mapping[str, Any]:
        return self.metadata.get(kind, {})

    def put_meta(self, changes: Sequence[tuple[str, str, Any]]) -> int:
        self.meta_writes.append(list(changes))
        for kind, key, value in changes:
            values = self.metadata.setdefault(kind, {})
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        self.on_meta()
        return self.log_end
