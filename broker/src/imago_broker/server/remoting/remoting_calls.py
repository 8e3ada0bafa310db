"""Requests that the broker sends to a client over the client's own connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.remoting.command import FLAG_ONEWAY, RemotingCommand

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    Done = Callable[[RemotingCommand | None], None]

_OPAQUE_MASK = 0x7FFF_FFFF


class ClientCalls:
    """The calls of one connection that wait for their answer. Numbers are the connection's own."""

    __slots__ = ("_calls_max", "_loop", "_opaque", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, calls_max: int) -> None:
        self._loop = loop
        self._calls_max = calls_max
        self._opaque = 0
        self._waiting: dict[int, tuple[Done, asyncio.TimerHandle]] = {}

    def oneway(self, code: int, ext: Mapping[str, str]) -> RemotingCommand:
        """Return a request that is not answered."""
        return RemotingCommand(code=int(code), flag=FLAG_ONEWAY, opaque=self._next(), ext=dict(ext))

    def start(
        self, code: int, ext: Mapping[str, str], timeout_ms: int, done: Done
    ) -> RemotingCommand | None:
        """Return a request whose answer goes to `done`; None when too many wait already."""
        if len(self._waiting) >= self._calls_max:
            return None
        opaque = self._next()
        timer = self._loop.call_later(timeout_ms / 1000, self._give_up, opaque)
        self._waiting[opaque] = (done, timer)
        return RemotingCommand(code=int(code), opaque=opaque, ext=dict(ext))

    def answered(self, response: RemotingCommand) -> None:
        """Hand an answer over; one that nobody waits for any more is dropped."""
        waiting = self._waiting.pop(response.opaque, None)
        if waiting is not None:
            done, timer = waiting
            timer.cancel()
            done(response)

    def fail_all(self) -> None:
        """The connection is gone: nobody will answer."""
        waiting, self._waiting = self._waiting, {}
        for done, timer in waiting.values():
            timer.cancel()
            done(None)

    def _give_up(self, opaque: int) -> None:
        done, _ = self._waiting.pop(opaque)
        done(None)

    def _next(self) -> int:
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        return self._opaque
