"""Long polls: requests that wait for a message, woken by the append that brings it.

A held request costs an entry in two dictionaries. There is one timer for all of them, set to the
earliest deadline; nothing else ever reads a queue to see whether it grew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from imago_broker.core.waiting import Ticket, WaitingRoom

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from imago_broker.ports import Clock
    from imago_wire.hot import QueueTail

logger = logging.getLogger(__name__)

Wake = Callable[[bool], bool]
"""Looks again: the argument says whether the time is up. Returns whether the request is finished;
one whose time is up always is."""

Held = Ticket[tuple[bytes, int], "Wake"]


class PullHold:
    """All waiting requests by topic and queue."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, *, held_max: int = 100_000
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._room: WaitingRoom[tuple[bytes, int], Wake] = WaitingRoom(size_max=held_max)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._room)

    def hold(self, topic: bytes, queue_id: int, *, hold_ms: int, wake: Wake) -> Held | None:
        """Keep a request for at most `hold_ms`; None when too many wait already."""
        deadline_ms = self._clock.monotonic_ms() + hold_ms
        held = self._room.add((topic, queue_id), deadline_ms, wake)
        if held is not None:
            self._set_timer()
        return held

    def forget(self, held: Held) -> None:
        """Drop a request whose connection is gone."""
        self._room.remove(held)

    def arrived(self, tails: Iterable[QueueTail]) -> None:
        """Wake the polls that wait for one of these queues: they have grown."""
        if not self._room:
            return
        for tail in tails:
            self.look_again(tail.topic, tail.queue_id)

    def look_again(self, topic: bytes, queue_id: int) -> None:
        """Wake the polls that wait for this queue."""
        for held in self._room.waiting_for((topic, queue_id)):
            if _woken(held, late=False):
                self._room.remove(held)

    def look_at_all(self) -> None:
        """Wake everybody: nobody knows which queues have grown for readers."""
        for key in {held.key for held in self._room.everyone()}:
            self.look_again(*key)

    def topic_changed(self, topic: str) -> None:
        """Wake the polls that wait for any queue of a topic: it was changed or deleted."""
        if not self._room:
            return
        name = topic.encode()
        for queue_id in {held.key[1] for held in self._room.everyone() if held.key[0] == name}:
            self.look_again(name, queue_id)

    def release_all(self) -> None:
        """Answer everything now, as if its time were up: the broker stops."""
        for held in self._room.everyone():
            self._room.remove(held)
            _woken(held, late=True)
        self._cancel_timer()

    def _set_timer(self) -> None:
        wake_ms = self._room.next_wake_ms()
        if wake_ms is None or (self._timer is not None and self._timer_ms <= wake_ms):
            return
        self._cancel_timer()
        delay_ms = max(0, wake_ms - self._clock.monotonic_ms())
        self._timer_ms = wake_ms
        self._timer = self._loop.call_later(delay_ms / 1000, self._time_is_up)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        for held in self._room.due(self._clock.monotonic_ms()):
            _woken(held, late=True)
        self._set_timer()


def _woken(held: Held, *, late: bool) -> bool:
    """Wake one request; one that fails is over, and costs the others nothing."""
    try:
        return held.token(late)
    except Exception:
        logger.exception("held_request_failed topic=%s queue=%d", *held.key)
        return True
