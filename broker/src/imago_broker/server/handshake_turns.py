"""Who of those that begin TLS has its handshake next: so many a second, each address in its turn.

A handshake is half a millisecond of the one core that also serves everybody else, and costs its
caller nothing. Above the rate handshakes wait, and connections that are served do not. No address
delays those of another.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_SECONDS: Final = 0.01
"""Between two looks at those that wait."""
SAVED_SECONDS: Final = 0.02
"""Of an idle time so much may be used up at once: with the usual rate ten handshakes, which are
some milliseconds in which nobody is served."""


class HandshakeTurns:
    """The turns of all ports of the process. `rate`: a second; 0: everybody has one at once."""

    def __init__(self, rate: int, clock: Callable[[], float]) -> None:
        self._rate, self._clock = rate, clock
        self._saved = self._saved_max
        self._counted_s = clock()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self.delayed = 0
        """Handshakes that did not have their turn at once."""

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return sum(map(len, self._waiting.values()))

    async def wait(self, address: str) -> None:
        """Return once a handshake with this address may begin."""
        if self._rate == 0:
            return
        self._count()
        if not self._waiting and self._saved >= 1:
            self._saved -= 1
            return
        self.delayed += 1
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        self._look_later()
        await turn

    @property
    def _saved_max(self) -> float:
        return max(1.0, self._rate * SAVED_SECONDS)

    def _count(self) -> None:
        now_s = self._clock()
        earned = (now_s - self._counted_s) * self._rate
        self._saved, self._counted_s = min(self._saved_max, self._saved + earned), now_s

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TURN_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        self._count()
        while self._waiting and self._saved >= 1:
            address, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[address] = turns  # behind the other addresses
            if not turn.done():  # its connection is still there
                turn.set_result(None)
                self._saved -= 1
        if self._waiting:
            self._look_later()
