"""Who of those that begin TLS has its handshake next: so many a second, one of each address.

A handshake is done on the one core that also serves everybody else, and costs a caller that never
ends it nothing. How much depends on the certificate: with ECDSA 0.2 ms, with RSA 4096 3 ms. So
besides the rate there is a budget: a quarter of the processor's time, counted by what the last
handshakes took. Above either handshakes wait, and connections that are served do not. No address
delays those of another; of IPv6 a network counts as one, as for the places of connections. Members
of the shard have every second one that somebody waits for: no number of callers keeps them out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from imago_broker.server.connection_places import source_of

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_SECONDS: Final = 0.002
"""Between two looks at those that wait: seldom ones would let many begin at once."""
SAVED_SECONDS: Final = 0.02
"""Of an idle time so many may begin at once: with the usual rate ten."""
SHARE: Final = 0.25
"""Of the processor's time, for handshakes."""
BUDGET_SECONDS: Final = 0.001
"""Of that so much may be used up at once, whatever was saved, since nobody is served meanwhile: two
handshakes; a longer one is alone."""
COST_SECONDS: Final = 0.001
"""What a handshake takes, until one was measured."""
BESIDES_SECONDS: Final = 0.0002
"""What a handshake usually takes besides its first step: its other steps, and Python's part."""
MEASURED: Final = 8
"""Handshakes that the average is of, about."""

_Line = OrderedDict[str, deque[asyncio.Future[None]]]
"""Those who wait, by address."""


class HandshakeQueue:
    """The queue of all ports of the process. `rate`: handshakes a second; 0: nobody waits."""

    def __init__(self, rate: int, clock: Callable[[], float]) -> None:
        self._rate, self._clock = rate, clock
        self._saved = self._saved_max
        self._budget_s = BUDGET_SECONDS
        self._cost_s = COST_SECONDS
        self._counted_s = clock()
        self._members: _Line = OrderedDict()
        self._others: _Line = OrderedDict()
        self._lines = [self._members, self._others]
        """In the order in which they are next."""
        self._timer: asyncio.TimerHandle | None = None
        self.delayed = 0
        """Handshakes that had to wait."""

    @property
    def waiting(self) -> int:
        """How many wait now."""
        waiters = (one for line in self._lines for queue in line.values() for one in queue)
        return sum(not one.done() for one in waiters)

    def cost(self) -> HandshakeCost:
        """Return what counts the steps of a handshake."""
        return HandshakeCost(self)

    async def wait(self, address: str, *, member: bool = False) -> None:
        """Return once a handshake with this address may begin; `member`: of the shard."""
        if self._rate == 0:
            return
        self._count()
        if not any(self._lines) and self._may_begin:
            self._begin()
            return
        self.delayed += 1
        waiter = asyncio.get_running_loop().create_future()
        line = self._members if member else self._others
        line.setdefault(source_of(address), deque()).append(waiter)
        self._look_later()
        await waiter

    def took(self, seconds: float) -> None:
        """Count what a handshake's first step took of the processor, in place of what was expected
        of it; the next will take about as much."""
        more_s = seconds + BESIDES_SECONDS - self._cost_s
        self._budget_s -= more_s
        self._cost_s += more_s / MEASURED

    def took_more(self, seconds: float) -> None:
        """Count what its other steps took beyond the usual."""
        self._budget_s -= seconds
        self._cost_s += seconds / MEASURED

    @property
    def _may_begin(self) -> bool:
        return self._saved >= 1 and self._budget_s >= min(self._cost_s, BUDGET_SECONDS)

    def _begin(self) -> None:
        self._saved -= 1
        self._budget_s -= self._cost_s

    @property
    def _saved_max(self) -> float:
        return max(1.0, self._rate * SAVED_SECONDS)

    def _count(self) -> None:
        now_s = self._clock()
        passed_s = now_s - self._counted_s
        self._saved = min(self._saved_max, self._saved + passed_s * self._rate)
        self._budget_s = min(BUDGET_SECONDS, self._budget_s + passed_s * SHARE)
        self._counted_s = now_s

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TURN_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        self._count()
        while any(self._lines) and self._may_begin:
            line = next(filter(None, self._lines))
            address, waiters = line.popitem(last=False)
            waiter = waiters.popleft()
            if waiters:
                line[address] = waiters  # behind the other addresses
            if not waiter.done():  # its connection is still there
                waiter.set_result(None)
                self._begin()
                self._lines.sort(key=lambda each: each is line)
        if any(self._lines):
            self._look_later()


class HandshakeCost:
    """What one handshake takes of the processor, counted with each of its steps."""

    def __init__(self, queue: HandshakeQueue) -> None:
        self._queue = queue
        self._first = True
        self._expected_s = BESIDES_SECONDS
        """What was counted already of the steps that follow."""

    def again(self) -> None:
        """Have the next step be a first one: it has waited for itself."""
        if not self._first:
            self._queue.took_more(-self._expected_s)
            self._expected_s = BESIDES_SECONDS
            self._first = True

    def took(self, seconds: float) -> None:
        """Count a step."""
        if self._first:
            self._first = False
            self._queue.took(seconds)
            return
        more_s = seconds - self._expected_s
        self._expected_s = max(0.0, -more_s)
        if more_s > 0:
            self._queue.took_more(more_s)
