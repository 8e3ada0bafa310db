"""Which queue of the target has the copies of which queue of the source.

A queue of the source keeps its queue of the target as long as that takes messages: order depends on
it. A new one gets the queue with its own shard's rank and its number, if nobody has that, else one
that nobody has, of the shard of its rank if there is one; where all are taken, one that has fewest.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class QueuePlace(NamedTuple):
    """A queue of a topic: its shard's name and its number there."""

    shard: str
    queue_id: int


def queues_wanted(sources: Iterable[QueuePlace], target_shards: int) -> int:
    """Return how many queues on each shard of the target give each source queue its own."""
    queues = list(sources)
    most = max((queue.queue_id + 1 for queue in queues), default=1)
    shards = len({queue.shard for queue in queues})
    if shards <= target_shards:
        return most
    return max(1, -(-len(queues) // max(1, target_shards)))


def assign(
    sources: Iterable[QueuePlace],
    targets: Iterable[QueuePlace],
    before: Mapping[QueuePlace, QueuePlace],
) -> dict[QueuePlace, QueuePlace]:
    """Return the target queue of each source queue; empty: the target has none that takes any."""
    places = sorted(set(targets), key=_order)
    wanted = sorted(set(sources), key=_order)
    if not places:
        return {}
    made = {source: before[source] for source in wanted if before.get(source) in set(places)}
    taken = Counter(made.values())
    shards = _shards(places)
    ranks = {shard: rank for rank, shard in enumerate(_shards(wanted))}
    for source in wanted:
        if source in made:
            continue
        shard = shards[ranks[source.shard] % len(shards)]
        best = QueuePlace(shard, source.queue_id)
        if best not in places or taken[best]:
            best = min(
                places, key=lambda place: (taken[place], place.shard != shard, _order(place))
            )
        made[source] = best
        taken[best] += 1
    return made


def _shards(places: Iterable[QueuePlace]) -> list[str]:
    return sorted({place.shard for place in places}, key=_by_number)


def _order(place: QueuePlace) -> tuple[tuple[int, str], int]:
    return _by_number(place.shard), place.queue_id


def _by_number(shard: str) -> tuple[int, str]:
    number = shard.rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0), shard
