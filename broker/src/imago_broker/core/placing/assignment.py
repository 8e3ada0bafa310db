"""Which member of a group gets which queues, where the broker deals them out. Pure.

Members and queues come sorted, so that every broker deals alike. The names are those of RocketMQ's
strategies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Q = TypeVar("Q")


def averagely(index: int, count: int, queues: Sequence[Q]) -> list[Q]:
    """Return one block of neighbours; the first members get one queue more."""
    share, left_over = divmod(len(queues), count)
    start = index * share + min(index, left_over)
    return list(queues[start : start + share + (1 if index < left_over else 0)])


def by_circle(index: int, count: int, queues: Sequence[Q]) -> list[Q]:
    """Return every count-th queue."""
    return list(queues[index::count])


STRATEGIES: Mapping[str, Callable[[int, int, Sequence[Q]], list[Q]]] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": by_circle,
}


def shared(strategy: str, index: int, count: int, queues: Sequence[Q], others: int) -> list[Q]:
    """Return a member's queues and those of so many members behind it, which it pops as well.

    Of more members than queues each shares one queue with some others.
    """
    if count > len(queues):
        return [queues[index % len(queues)]] if queues else []
    deal = STRATEGIES[strategy]
    members = dict.fromkeys((index + step) % count for step in range(others + 1))
    return [queue for member in members for queue in deal(member, count, queues)]
