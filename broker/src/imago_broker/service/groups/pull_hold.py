"""Long polls: requests that wait for a message, woken by the append that brings it.

A held request costs an entry in two dictionaries. There is one timer for all of them, set to the
earliest deadline, and one for wake-ups that are put off; nothing else ever reads a queue to see
whether it grew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from imago_broker.core.waiting import Ticket, WaitingRoom
from imago_broker.core.wake_pace import WakePace
from imago_wire.record_format.references import LIGHT_QUEUE_ID

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from imago_broker.ports import Clock
    from imago_wire.hot import QueueTail

logger = logging.getLogger(__name__)

Wake = Callable[[bool], bool]
"""Looks again: the argument says whether the time is up. Returns whether the request is finished;
one whose time is up always is."""

PUT_OFF_S = 0.001

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
        self._pace = WakePace()
        self._put_off: dict[tuple[bytes, int], None] = {}
        self._put_off_timer: asyncio.TimerHandle | None = None

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
        held.token = _is_over

    def arrived(self, tails: Iterable[QueueTail]) -> None:
        """Wake the polls that wait for one of these queues: they have grown."""
        if not self._room:
            return
        keys = [(tail.topic, tail.queue_id) for tail in tails]
        wanted = [key for key in keys if self._room.is_wanted(key)]
        if not wanted:
            return
        if self._pace.puts_off(len(wanted), self._clock.monotonic_ms()):
            self._put_off.update(dict.fromkeys(wanted))
            if self._put_off_timer is None:
                self._put_off_timer = self._loop.call_later(PUT_OFF_S, self._wake_put_off)
        else:
            for key in wanted:
                self.look_again(*key)

    def look_again(self, topic: bytes, queue_id: int) -> None:
        """Wake the polls that wait for this queue."""
        for held in self._room.waiting_for((topic, queue_id)):
            if _woken(held, late=False):
                self._room.remove(held)

    def _wake_put_off(self) -> None:
        self._put_off_timer = None
        keys, self._put_off = self._put_off, {}
        for key in keys:
            self.look_again(*key)

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

    def light_queue_gone(self, name: str) -> None:
        """Wake the polls that wait for a light queue: it is deleted."""
        self.look_again(name.encode(), LIGHT_QUEUE_ID)

    def release_all(self) -> None:
        """Answer everything now, as if its time were up: the broker stops."""
        for held in self._room.everyone():
            self._room.remove(held)
            _woken(held, late=True)
        self._cancel_timer()
        if self._put_off_timer is not None:
            self._put_off_timer.cancel()
            self._put_off_timer = None
        self._put_off.clear()

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
        over = held.token(late)
    except Exception:
        logger.exception("held_request_failed topic=%s queue=%d", *held.key)
        over = True
    if over:
        # It knows its ticket: both would stay until the garbage collector looks.
        held.token = _is_over
    return over


def _is_over(_: bool) -> bool:
    """Stand for the wake-up of a request that was answered."""
    return True
