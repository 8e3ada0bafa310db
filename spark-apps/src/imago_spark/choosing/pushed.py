"""Filters that Spark pushes down: which queues they leave, and which offsets and times.

Spark applies all of them again, so a narrower range is only ever a range that is not read in vain:
what cannot be told here is left to Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.datasource import Filter

    from imago_client.message_queue import MessageQueue

_NAMES: Final = ("topic", "shard", "queue")
_OFFSET: Final = "offset"
_TIMES: Final = ("store_time", "timestamp")
_LOW: Final = -(1 << 63)
_HIGH: Final = (1 << 63) - 1


@dataclass(slots=True)
class Pushed:
    """What the rows of a query have in common."""

    names: dict[str, frozenset[Any]] = field(default_factory=dict)
    """Of topic, shard and queue those that are left; not there: all."""
    first: int = _LOW
    """Offsets from here on."""
    end: int = _HIGH
    """Offsets before here."""
    from_ms: int | None = None
    """Stored then or later."""
    until_ms: int | None = None
    """Stored before then."""

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Pushed:
        """Read filters that all hold; others than those known here are passed over."""
        made = cls()
        for one in filters:
            made._take(one)
        return made

    def _take(self, one: Filter) -> None:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        if len(attribute) != 1:
            return
        name = attribute[0]
        if name in _NAMES:
            self._take_name(name, one)
        elif name == _OFFSET:
            low, end = _bounds(one)
            self.first, self.end = max(self.first, low), min(self.end, end)
        elif name in _TIMES:
            self._take_time(one)

    def _take_name(self, name: str, one: Filter) -> None:
        if isinstance(one, EqualTo | EqualNullSafe):
            wanted = frozenset((one.value,))
        elif isinstance(one, In):
            wanted = frozenset(one.value)
        else:
            return
        self.names[name] = wanted & self.names.get(name, wanted)

    def _take_time(self, one: Filter) -> None:
        value = getattr(one, "value", None)
        if not isinstance(value, datetime):
            return
        known = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        ms = int((known - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
        if isinstance(one, GreaterThan | GreaterThanOrEqual | EqualTo):
            self.from_ms = max(self.from_ms or 0, ms - 1)
        if isinstance(one, LessThan | LessThanOrEqual | EqualTo):
            later = ms + 2  # a fraction of the last millisecond may be asked for
            self.until_ms = later if self.until_ms is None else min(self.until_ms, later)

    def keeps(self, queue: MessageQueue) -> bool:
        """Whether any row of a queue may be wanted."""
        found = {"topic": queue.topic, "shard": queue.shard, "queue": queue.queue_id}
        return all(found[name] in wanted for name, wanted in self.names.items())

    def narrowed(
        self, start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]
    ) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
        """Return the bounds of the queues that are left, by their offsets."""
        kept = [queue for queue in end if self.keeps(queue)]
        ends = {queue: min(end[queue], self.end) for queue in kept}
        return {queue: max(start.get(queue, 0), self.first) for queue in kept}, ends


def _bounds(one: Filter) -> tuple[int, int]:
    """Return from which offset on, and before which, a filter holds."""
    value = getattr(one, "value", None)
    if not isinstance(value, int) or isinstance(value, bool):
        return _LOW, _HIGH
    if isinstance(one, EqualTo | EqualNullSafe):
        return value, value + 1
    if isinstance(one, GreaterThan):
        return value + 1, _HIGH
    if isinstance(one, GreaterThanOrEqual):
        return value, _HIGH
    if isinstance(one, LessThan):
        return _LOW, value
    if isinstance(one, LessThanOrEqual):
        return _LOW, value + 1
    return _LOW, _HIGH
