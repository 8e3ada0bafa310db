"""Offsets per queue: their JSON, the ranges between them, and the share of a batch.

Two JSON forms. Options: `{"orders": {"shard-0": {"0": 23, "1": -1}}}`, where -2 is the earliest
and -1 the latest offset. The engine's own: `{"v": 1, "topics": {…the same…}}`, keys sorted, since
Spark compares offsets as text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from imago_client.messages import MessageQueue
from imago_spark.errors import OffsetError

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST: Final = -2
LATEST: Final = -1
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The offsets of one queue from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int


Offsets = dict[MessageQueue, int]


def to_engine(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Return the engine offset of these queue offsets."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        shards = topics.setdefault(queue.topic, {})
        shards.setdefault(queue.shard, {})[str(queue.queue_id)] = offset
    return {"topics": topics, "v": _VERSION}


def from_engine(value: Mapping[str, Any]) -> Offsets:
    """Return the queue offsets of an engine offset. OffsetError: another source wrote it."""
    version = value.get("v")
    if version != _VERSION:
        raise OffsetError(
            f"checkpoint holds offsets of version {version!r}, this source writes {_VERSION};"
            " start the query with a new checkpointLocation"
        )
    return _queues(value.get("topics"), "checkpoint")


def from_option(text: str, name: str) -> Offsets:
    """Return the queue offsets that an option lists as JSON, -2 and -1 unresolved."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OffsetError(
            f"option {name!r}: neither earliest nor latest nor JSON ({error})"
        ) from None
    found = _queues(value, f"option {name!r}")
    for queue, offset in found.items():
        if offset < EARLIEST:
            raise OffsetError(f"option {name!r}: offset {offset} of {queue}")
    return found


def _queues(value: Any, where: str) -> Offsets:
    try:
        return {
            MessageQueue(topic, shard, int(queue_id)): _whole(offset)
            for topic, shards in value.items()
            for shard, queues in shards.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OffsetError(
            f'{where}: offsets must look like {{"orders": {{"shard-0": {{"0": 23}}}}}}'
        ) from None


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


def ranges(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[QueueRange]:
    """Return what lies between two sets of offsets, sorted, empty ranges left out.

    A queue that only `end` has is read from its beginning: the caller has put its first offset
    into `start` if that is not 0. One that only `start` has is gone and yields nothing.
    """
    return [
        QueueRange(queue, start.get(queue, 0), offset)
        for queue, offset in sorted(end.items())
        if offset > start.get(queue, 0)
    ]


def admit(
    start: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int], rows_max: int | None
) -> Offsets:
    """Return the end of the next batch: at most `rows_max` offsets beyond `start`.

    Every queue gets its part of the limit in proportion to its backlog, rounded up to one row, so
    that none starves. No offset goes back, not even where `latest` is below `start`.
    """
    backlog = {queue: max(0, latest.get(queue, 0) - offset) for queue, offset in start.items()}
    total = sum(backlog.values())
    end = dict(start)
    if rows_max is None or total <= rows_max:
        return {queue: offset + backlog[queue] for queue, offset in end.items()}
    left = rows_max
    for queue in sorted(start, key=lambda one: (-backlog[one], one)):
        share = min(backlog[queue], left, -(-backlog[queue] * rows_max // total))
        end[queue] += share
        left -= share
    return end
