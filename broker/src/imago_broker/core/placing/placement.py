"""On which shards a new topic gets its queues: spread over zones, then over the emptier shards.

Queues count per shard: a topic of 8 queues on 3 shards has 24. Where a topic is changes only by
what people ask for; a shard that fills up later moves nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from imago_broker.model.registry.cluster import ClusterView


class Room(NamedTuple):
    """A shard that takes new topics."""

    shard: int
    queues: int
    """Write queues of all topics that it has."""
    zone: str = ""
    """Where its master is; "" where nobody said: such shards count as being far from each other."""


def rooms(view: ClusterView) -> list[Room]:
    """The shards that can take new topics: those that have a master and are not cordoned."""
    found = []
    for shard in view.shards():
        master = view.master(shard)
        if master is not None and shard not in view.cordoned:
            placed = (topic.shards.get(shard) for topic in view.topics.values())
            found.append(Room(shard, sum(queues.write for queues in placed if queues), master.zone))
    return found


def choose(rooms: Iterable[Room], count: int, *, taken: Collection[Room] = ()) -> tuple[int, ...]:
    """Return the shards, ascending, that a topic gets besides those it has (`taken`).

    Each next one is in a zone that has the fewest of the topic so far, and among those has
    the fewest queues. ValueError when there are not as many.
    """
    has = {room.shard for room in taken}
    free = [room for room in rooms if room.shard not in has]
    if count > len(free):
        raise WrongError(
            f"shards: {count} more needed, {len(free)} to be had (with a master, not cordoned)"
        )
    used = Counter(_far(room) for room in taken)
    chosen = []
    for _ in range(count):
        best = min(free, key=lambda room: (used[_far(room)], room.queues, room.shard))
        free.remove(best)
        used[_far(best)] += 1
        chosen.append(best.shard)
    return tuple(sorted(chosen))


def _far(room: Room) -> str | int:
    return room.zone or room.shard
