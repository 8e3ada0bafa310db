"""Offsets per queue: their JSON, the ranges between them, and the share of a batch.

In options they are JSON: `{"orders": {"shard-0": {"0": 23, "1": -1}}}`, where -2 is the earliest
and -1 the latest offset.
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
    from collections.abc import Iterable, Mapping, Sequence

    from imago_spark.incarnations import Incarnation, Incarnations

EARLIEST: Final = -2
LATEST: Final = -1
_SPLIT_SLACK: Final = 0.1
"""A part may be larger than asked for by this share: no tiny one is cut off at a queue's end."""
_TASKS: Final = 64
"""So many tasks may each read one small range: Spark starts about 30 a second."""
_ASKING_BYTES: Final = 65_536
"""What might be read in the time that asking for a range takes."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The offsets of one queue from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int
    incarnation: Incarnation | None = None
    """Which topic the offsets are of, where it is known."""


Offsets = dict[MessageQueue, int]


def option_json(text: str, name: str) -> Any:
    """Return the JSON of an option that lists offsets. OffsetError: it is none."""
    try:
        return json.loads(text, object_pairs_hook=each_once)
    except ValueError as error:
        raise OffsetError(
            f"option {name!r}: {text!r:.60} is neither earliest nor latest (a start: nor group) nor"
            f' JSON such as {{"orders": {{"shard-0": {{"0": 23}}}}}} ({error})'
        ) from None


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. ValueError: it has a name twice, of which one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def queues_of(value: Any, where: str) -> Offsets:
    """Return the offsets of queues by topic, shard and number. OffsetError: it is no such list."""
    try:
        return {
            MessageQueue(topic, shard, _number(queue_id)): whole_of(offset)
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


def whole_of(value: Any) -> int:
    """Return a whole number of JSON. TypeError: it is something else."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


def ranges(
    start: Mapping[MessageQueue, int],
    end: Mapping[MessageQueue, int],
    incarnations: Incarnations | None = None,
) -> list[QueueRange]:
    """Return the ranges between two sets of offsets, sorted, without empty ones.

    A queue that only `end` has is read from its beginning: the caller has put its first offset
    into `start` if that is not 0. A queue that only `start` has was left out: no range.
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


def packed(
    parts: Sequence[QueueRange],
    row_bytes: Mapping[MessageQueue, float],
    *,
    split_bytes: int,
    partitions_min: int = 1,
) -> list[tuple[QueueRange, ...]]:
    """Return parts as tasks: where there are very many, a task reads several small ones in turn."""
    if len(parts) <= max(_TASKS, partitions_min):
        return [(one,) for one in parts]
    sizes = [_ASKING_BYTES + (one.end - one.start) * row_bytes.get(one.queue, 0.0) for one in parts]
    target = min(split_bytes, sum(sizes) / max(_TASKS, partitions_min))
    tasks: list[tuple[QueueRange, ...]] = []
    task: list[QueueRange] = []
    filled = 0.0
    for one, size in zip(parts, sizes, strict=True):
        if task and filled + size > target:
            tasks.append(tuple(task))
            task, filled = [], 0.0
        task.append(one)
        filled += size
    return [*tasks, tuple(task)]


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
