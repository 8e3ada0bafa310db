"""Where a group goes on at the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_mirror.core.offsets import OffsetMap

Q = TypeVar("Q")


class TargetQueue(NamedTuple):
    """What is known of a queue of the target, and the source queues whose copies go there."""

    first: int
    """Its first offset that still exists."""
    map: OffsetMap
    feeds: frozenset[str]


def new_offsets(
    queues: Mapping[Q, TargetQueue], consumed: Mapping[str, int], there: Mapping[Q, int]
) -> dict[Q, int]:
    """Return the offsets to commit for a group at the target.

    `consumed`: how far it is in the source's queues; `there`: what it has committed at the target.
    An offset never goes back. A queue in which the group has none gets one, also where it may pass
    nothing yet: without one it might begin at the queue's end.
    """
    found: dict[Q, int] = {}
    for queue, known in queues.items():
        if not known.feeds & consumed.keys():
            continue
        had = there.get(queue)
        at = known.map.advance(max(had or 0, known.first), consumed)
        if had is None or at > had:
            found[queue] = at
    return found
