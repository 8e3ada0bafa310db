"""What levels and timers tell of their queues to who asks what waits there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class OpenQueue(NamedTuple):
    """A queue of messages that wait, from its first to its end; some of them are done."""

    queue_id: int
    first: int
    end: int
    is_done: Callable[[int], bool]
