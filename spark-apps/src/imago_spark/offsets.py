"""Offsets per queue: their JSON, the ranges between them, and the share of a batch.

Two JSON forms. Options: `{"orders": {"shard-0": {"0": 23, "1": -1}}}`, where -2 is the earliest
and -1 the latest offset. The engine's own: `{"incarnations": {"orders": {"shard-0": 7}}, "topics":
{…the same…}, "v": 1}`, keys sorted, since Spark compares offsets as text. An incarnation tells a
topic from an earlier one of its name on that shard.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from imago_client.message_queue import MessageQueue
from imago_spark.errors import OffsetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EARLIEST: Final = -2
LATEST: Final = -1
_VERSION: Final = 1
_SPLIT_SLACK: Final = 0.1
"""A part may be larger than asked for by this share: no tiny one is cut off at a queue's end."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The offsets of one queue from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int
    incarnation: int | None = None
    """Of the topic that the offsets are of, where it is known."""


Offsets = dict[MessageQueue, int]
Incarnations = dict[tuple[str, str], int]
"""By topic and shard."""


def to_engine(
    offsets: Mapping[MessageQueue, int], incarnations: Mapping[tuple[str, str], int] | None = None
) -> dict[str, Any]:
    """Return the engine offset of these queue offsets."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        shards = topics.setdefault(queue.topic, {})
        shards.setdefault(queue.shard, {})[str(queue.queue_id)] = offset
    if not incarnations:
        return {"topics": topics, "v": _VERSION}
    made: dict[str, dict[str, int]] = {}
    for (topic, shard), number in sorted(incarnations.items()):
        made.setdefault(topic, {})[shard] = number
    return {"incarnations": made, "topics": topics, "v": _VERSION}


def from_engine(value: Mapping[str, Any]) -> Offsets:
    """Return the queue offsets of an engine offset. OffsetError: another source wrote it."""
    version = value.get("v")
    if version != _VERSION:
        raise OffsetError(
            f"checkpoint holds offsets of version {version!r}, this source writes {_VERSION};"
            " start the query with a new checkpointLocation"
        )
    return _queues(value.get("topics"), "checkpoint")


def incarnations_of(value: Mapping[str, Any]) -> Incarnations:
    """Return the incarnations in an engine offset; checkpoints of older versions have none."""
    try:
        return {
            (topic, shard): _whole(number)
            for topic, shards in value.get("incarnations", {}).items()
            for shard, number in shards.items()
        }
    except (AttributeError, TypeError):
        raise OffsetError(
            "checkpoint: its incarnations are no numbers by topic and shard"
        ) from None


def made_anew(before: Incarnations, after: Incarnations) -> list[tuple[str, str]]:
    """Return topic and shard of topics that were deleted and created again in between."""
    return sorted(key for key in before.keys() & after.keys() if before[key] != after[key])


def from_option(text: str, name: str) -> Offsets:
    """Return the queue offsets that an option lists as JSON, -2 and -1 unresolved."""
    try:
        value = json.loads(text, object_pairs_hook=_each_once)
    except ValueError as error:
        raise OffsetError(
            f"option {name!r}: neither earliest nor latest nor JSON ({error})"
        ) from None
    found = _queues(value, f"option {name!r}")
    for queue, offset in found.items():
        if offset < EARLIEST:
            raise OffsetError(f"option {name!r}: offset {offset} of {queue}")
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. ValueError: it has a name twice, of which one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _queues(value: Any, where: str) -> Offsets:
    try:
        return {
            MessageQueue(topic, shard, _number(queue_id)): _whole(offset)
            for topic, shards in value.items()
            for shard, queues in shards.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OffsetError(
            f'{where}: offsets must look like {{"orders": {{"shard-0": {{"0": 23}}}}}}'
        ) from None


def _number(text: str) -> int:
    if not text.isdecimal() or text != str(int(text)):
        raise ValueError(text)
    return int(text)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


def ranges(
    start: Mapping[MessageQueue, int],
    end: Mapping[MessageQueue, int],
    incarnations: Mapping[tuple[str, str], int] | None = None,
) -> list[QueueRange]:
    """Return the ranges between two sets of offsets, sorted, without empty ones.

    A queue that only `end` has is read from its beginning: the caller has put its first offset
    into `start` if that is not 0. A queue that only `start` has no longer exists: no range.
    """
    known = incarnations or {}
    return [
        QueueRange(queue, start.get(queue, 0), offset, known.get((queue.topic, queue.shard)))
        for queue, offset in sorted(end.items())
        if offset > start.get(queue, 0)
    ]


def split(
    wanted: Iterable[QueueRange],
    row_bytes: Mapping[MessageQueue, float],
    *,
    split_bytes: int,
    partitions_min: int = 1,
) -> list[QueueRange]:
    """Cut ranges into parts of about `split_bytes`, or smaller ones to get `partitions_min`.

    `row_bytes` is the approximate size of a queue's rows; the parts of a queue are equally long.
    """
    whole = list(wanted)
    sizes = {one: (one.end - one.start) * row_bytes.get(one.queue, 0.0) for one in whole}
    target = max(1.0, min(split_bytes, sum(sizes.values()) / max(1, partitions_min)))
    parts: list[QueueRange] = []
    for one in whole:
        rows = one.end - one.start
        count = min(rows, max(1, math.ceil(sizes[one] / target - _SPLIT_SLACK)))
        borders = [one.start + rows * index // count for index in range(count + 1)]
        parts += [replace(one, start=start, end=end) for start, end in itertools.pairwise(borders)]
    return parts


def admit(
    start: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int], rows_max: int | None
) -> Offsets:
    """Return the end of the next batch: at most `rows_max` offsets beyond `start`.

    Every queue gets its part of the limit in proportion to its backlog, rounded up to one row, so
    that none starves. No offset decreases, not even if `latest` is below `start`.
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
