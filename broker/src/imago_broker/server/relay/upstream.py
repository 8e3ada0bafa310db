"""A relay's own connection, to the broker that has become the master."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from imago_broker.server.introductions import TAKEN

if TYPE_CHECKING:
    import ssl

WRITE_BYTES_PAUSE = 1 << 20
"""Of bytes that one side has not taken, above which the other is not read."""


class UpstreamUser(Protocol):
    """The relay whose connection it is."""

    def connected(self, upstream: Upstream) -> None:
        """The connection to the new master stands."""

    def answer(self, upstream: Upstream, data: bytes) -> None:
        """The new master said this."""

    def upstream_slow(self, slow: bool) -> None:
        """The new master takes nothing for now, or again."""

    def upstream_lost(self, upstream: Upstream, reason: str) -> None:
        """The new master is gone, or was not reached."""


class Upstream(asyncio.Protocol):
    """The connection to the new master; tells the relay what comes until it is closed by us."""

    def __init__(self, relay: UpstreamUser) -> None:
        self._relay = relay
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closed = False
        self._introduction = b""
        """What was said of the client and is not taken yet."""
        self._seconds = 0.0

    def open(
        self,
        host: str,
        port: int,
        turns: asyncio.Semaphore,
        seconds: float,
        tls: ssl.SSLContext | None = None,
        introduction: bytes = b"",
    ) -> None:
        """Connect, in turn; be lost when that takes too long.

        `introduction`: what is said first of the client, and has to be taken.
        """
        self._introduction, self._seconds = introduction, seconds
        self._opening = asyncio.get_running_loop().create_task(
            self._open(host, port, turns, seconds, tls)
        )

    async def _open(
        self,
        host: str,
        port: int,
        turns: asyncio.Semaphore,
        seconds: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        try:
            async with turns, asyncio.timeout(seconds):
                await asyncio.get_running_loop().create_connection(
                    lambda: self, host, port, ssl=tls
                )
        except (OSError, TimeoutError) as error:
            self._opening = None
            self._lose(str(error) or "no connection in time")
        else:
            self._opening = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._closed:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_PAUSE)
        if self._introduction:
            self._transport.write(self._introduction)
            self.expect(self._seconds, "answer to an introduction in time")
        else:
            self._relay.connected(self)

    def data_received(self, data: bytes) -> None:
        if self._introduction and not self._closed:
            self._introduction = b""
            if data[:1] != TAKEN:
                self._lose("it takes no introductions")
                return
            self.calm()
            self._relay.connected(self)
            data = data[1:]
        if data and not self._closed:
            self._relay.answer(self, data)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._relay.upstream_slow(True)

    def resume_writing(self) -> None:
        self._relay.upstream_slow(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(str(exc) if exc else "closed by the other side")

    def write(self, data: bytes) -> None:
        """Pass requests on."""
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def read(self, wanted: bool) -> None:
        """Read what comes, or leave it to the kernel."""
        if self._transport is not None and not self._transport.is_closing():
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def expect(self, seconds: float, what: str) -> None:
        """Be lost, for want of this, unless the time is taken back by `calm` or set again."""
        self.calm()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._lose, f"no {what}")

    def calm(self) -> None:
        """Expect nothing for now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Close quietly; pass nothing on any more."""
        self._closed = True
        self.calm()
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._transport is not None:
            self._transport.abort()

    def _lose(self, reason: str) -> None:
        if not self._closed:
            self.close()
            self._relay.upstream_lost(self, reason)
