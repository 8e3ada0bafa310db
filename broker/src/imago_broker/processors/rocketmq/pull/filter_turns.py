"""Requests whose filters a turn of the loop has no time left to compile wait for the next one.

Each turn compiles one filter, and more while together they are short. A connection with a request
that waits is served nothing else meanwhile: the order of its requests is kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.core.sql92.errors import FilterPendingError
from imago_broker.core.sql92.filters import FilterCache
from imago_broker.processors.rocketmq.exchange import Reply
from imago_broker.processors.rocketmq.rows import reply_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from imago_broker.processors.rocketmq.exchange import Exchange
    from imago_broker.processors.rocketmq.rows import Handler, Row

_PENDING = Reply()


class FilterTurns:
    """Gives the filters a new budget each turn, and repeats the requests that had none left."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.filters = FilterCache(self._spending)
        self._loop = loop
        self._waiting: deque[_Waiting] = deque()

    def patient(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows whose requests wait where their filters have to."""
        return [
            replace(row, handle=self._patient(row.handle)) if row.filtered else row for row in rows
        ]

    def _patient(self, handle: Handler) -> Handler:
        def handled(exchange: Exchange) -> Reply | None:
            try:
                return handle(exchange)
            except FilterPendingError:
                self._waiting.append(_Waiting(exchange, handle, self._waiting.remove))
                return None

        return handled

    def _spending(self) -> None:
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self.filters.renew()
        while self._waiting and self._waiting[0].again():
            self._waiting.popleft().done()


class _Waiting:
    """One request that waits."""

    def __init__(
        self, exchange: Exchange, handle: Handler, forget: Callable[[_Waiting], None]
    ) -> None:
        self._exchange, self._handle, self._forget = exchange, handle, forget
        self._reply: Reply | None = None
        exchange.channel.hold_back()
        exchange.channel.watch(self._gone)

    def again(self) -> bool:
        """Handle it once more; False: it has to wait longer."""
        self._reply = reply_of(self._tried, self._exchange)
        return self._reply is not _PENDING

    def done(self) -> None:
        """Answer it, unless its handler will, and serve what came behind it."""
        channel = self._exchange.channel
        channel.unwatch(self._gone)
        if self._reply is not None:
            self._exchange.answer(self._reply)
        channel.go_on()

    def _tried(self, exchange: Exchange) -> Reply | None:
        try:
            return self._handle(exchange)
        except FilterPendingError:
            return _PENDING

    def _gone(self) -> None:
        self._forget(self)
        self._exchange.finish()
