"""Where to begin and end by the time of storing: one time for all queues, or a time for some."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from imago_client.message_queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMS: Final = (
    "milliseconds since 1970, an ISO 8601 time with its zone, like 2026-11-21T08:00:00Z, or one of"
    ' these for some queues: {"orders": {"shard-0": {"0": "2026-11-21T08:00:00Z"}}}'
)
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds since 1970: of all queues, or of those that are named."""

    of_all: int | None = None
    of_queues: Mapping[MessageQueue, int] = field(default_factory=dict)

    def of(self, queue: MessageQueue) -> int | None:
        """Return a queue's time, None where nothing is said of it."""
        return self.of_queues.get(queue, self.of_all)


def parse_times(text: str) -> Times:
    """Return the times that an option names. ValueError: it is something else."""
    if not text.strip().startswith("{"):
        return Times(_milliseconds(text.strip()))
    try:
        queues = {
            MessageQueue(topic, shard, int(number)): _milliseconds(time)
            for topic, shards in json.loads(text).items()
            for shard, times in shards.items()
            for number, time in times.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"must be {_FORMS}") from None
    if not queues:
        raise ValueError("names no queue")
    return Times(of_queues=queues)


def _milliseconds(given: Any) -> int:
    text = str(given).strip()
    if text.isdecimal():
        found = int(text)
    else:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r}, must be {_FORMS}") from None
        if time.tzinfo is None:
            raise ValueError(f"{text!r} has no zone: add it, such as Z for UTC")
        # Whole numbers: a fraction of a second as a float might be the millisecond before.
        since = time - datetime(1970, 1, 1, tzinfo=UTC)
        found = since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
    if not 0 <= found <= _LAST_MS:
        raise ValueError(f"{text!r} is not a time of the years 1970 to 9999")
    return found
