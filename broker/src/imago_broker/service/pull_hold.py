"""Long polls: requests that wait for a message, woken by the append that brings it.

A held request costs an entry in two dictionaries. The only timer is the one for the earliest
deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Held:
    """One waiting request. `wake(late)` is called when its queue grew (late=False) or its time is
    up (late=True); it returns True when the request is finished and False to keep waiting."""

    __slots__ = ("deadline_ms", "key", "wake")

    def __init__(
        self, key: tuple[str, int], deadline_ms: int, wake: Callable[[bool], bool]
    ) -> None:
        self.key = key
        self.deadline_ms = deadline_ms
        self.wake = wake


class PullHold:
    """All waiting requests by topic and queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, held_max: int = 100_000) -> None:
        self._loop = loop
        self._held_max = held_max

    def hold(
        self, topic: str, queue_id: int, *, deadline_ms: int, wake: Callable[[bool], bool]
    ) -> Held | None:
        """Keep a request; None when too many wait already. `deadline_ms` is monotonic."""
        raise NotImplementedError

    def forget(self, held: Held) -> None:
        """Drop a request whose connection is gone."""
        raise NotImplementedError
