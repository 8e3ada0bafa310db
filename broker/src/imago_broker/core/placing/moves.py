"""Moving topics between shards: where to open them, and what is left on the shard they leave.

Neither protocol can rename a queue, and no message is ever copied: a topic moves by new queues
on other shards, after which those that it leaves take no more and are read out, or expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_broker.core.placing.placement import choose
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from imago_broker.core.placing.placement import Room

Bounds = tuple[int, int]
"""First and end offset of a queue."""


def targets(rooms: Sequence[Room], writable: Collection[int], leaving: int) -> tuple[int, ...]:
    """Return the shards on which a topic has to be opened before it leaves one.

    `rooms`: the shards that take topics; `writable`: those on which the topic takes messages.
    It keeps the number of shards that it has, as long as there are others without it. Empty: it
    has enough elsewhere. ValueError: it would have no place left.
    """
    free = [room for room in rooms if room.shard != leaving]
    if not free:
        raise WrongError("no other shard takes topics")
    taken = [room for room in free if room.shard in writable]
    missing = len(free) - len(taken)
    return choose(free, min(1, missing), taken=taken)


class Unread(NamedTuple):
    """What groups have not read of some queues. Numbers are of the slowest group, by queue."""

    queues: int = 0
    """Queues that hold something for somebody."""
    messages: int = 0
    groups: Mapping[str, int] = {}
    """Messages that each group has to read still; groups that are through are not listed."""
    unclaimed: int = 0
    """Messages in queues of which no group has ever told how far it is."""

    def plus(self, other: Unread) -> Unread:
        """Return both together."""
        groups = dict(self.groups)
        for name, messages in other.groups.items():
            groups[name] = groups.get(name, 0) + messages
        return Unread(
            self.queues + other.queues,
            self.messages + other.messages,
            groups,
            self.unclaimed + other.unclaimed,
        )


def unread(
    queues: Mapping[int, Bounds], committed: Mapping[str, Mapping[int, int]]
) -> tuple[Unread, frozenset[int]]:
    """Return what is left of one topic, and the queues in which it is.

    A group that has told its progress anywhere in the topic reads all of its queues: where it
    has told none it has read nothing. Without any group the messages wait for their expiry.
    """
    left: set[int] = set()
    groups: dict[str, int] = {}
    messages = unclaimed = 0
    for queue, bounds in queues.items():
        first, end = bounds
        behind = _behind(bounds, queue, committed)
        slowest = max(behind.values(), default=end - first)
        if slowest:
            left.add(queue)
            messages += slowest
            unclaimed += 0 if behind else slowest
        for group, count in behind.items():
            if count:
                groups[group] = groups.get(group, 0) + count
    return Unread(len(left), messages, groups, unclaimed), frozenset(left)


def _behind(
    bounds: Bounds, queue: int, committed: Mapping[str, Mapping[int, int]]
) -> dict[str, int]:
    first, end = bounds
    return {
        group: max(0, end - max(first, offsets.get(queue, first)))
        for group, offsets in committed.items()
    }


def total(parts: Iterable[Unread]) -> Unread:
    """Return what is left of several topics together."""
    result = Unread()
    for part in parts:
        result = result.plus(part)
    return result
