"""One asyncio connection to one MetaQ broker, and all of them by address."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from imago_client.connections.admission import Admission
from imago_client.connections.closing import close_once
from imago_client.connections.opening import Connections
from imago_client.connections.reaching import ended, not_had
from imago_client.errors import ConnectionLostError, RequestTimeoutError
from imago_client.metaq.introducing import introduce_async
from imago_client.metaq.values import FETCH_BYTES_MAX, checked_response
from imago_client.tls import Trust
from imago_wire.errors import ProtocolError
from imago_wire.text.commands import Quit, Version
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from imago_client.metaq.values import MetaqConfig
    from imago_wire.text.commands import Request, Response

T = TypeVar("T")

log = logging.getLogger(__name__)

_OPAQUE_MAX: Final = (1 << 31) - 2
_LINE_BYTES_MAX: Final = 4096
_MISSES_MAX: Final = 3
_PUTS_MAX: Final = 1024
_PUTS_BYTES_MAX: Final = 32 << 20
"""Of the puts under way; more wait their turn."""


class TextConnection(asyncio.Protocol):
    """Matches answers to requests by their number, and keeps an idle connection alive."""

    def __init__(self, address: str, config: MetaqConfig) -> None:
        self.address = address
        self._config = config
        self._decoder = Decoder(line_bytes_max=_LINE_BYTES_MAX, body_bytes_max=4 * FETCH_BYTES_MAX)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._opaque = 0
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._writable.set()
        self._heartbeats: asyncio.Task[None] | None = None
        self._used_at = self._loop.time()
        self.lost: asyncio.Future[None] = self._loop.create_future()

    async def ask(self, make: Callable[[int], Request], *, timeout_s: float) -> Response:
        """Send the command made of a request number; return its answer."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._writable.is_set():  # the first to go on may fill the buffer again
                    await self._writable.wait()
                if self.lost.done() or self._transport is None:
                    raise ended(self.address, None, self._config)
                self._opaque = self._opaque % _OPAQUE_MAX + 1
                opaque = self._opaque
                answer: asyncio.Future[Response] = self._loop.create_future()
                data = encode(make(opaque))
                self._waiting[opaque] = answer
                try:
                    self._transport.write(data)
                    self._used_at = self._loop.time()
                    return await answer
                finally:
                    self._waiting.pop(opaque, None)
        except TimeoutError:
            raise RequestTimeoutError(self.address, timeout_s) from None

    async def close(self) -> None:
        """Tell the broker, close, and wait until the connection is gone."""
        if self._transport is not None and not self.lost.done():
            self._transport.write(encode(Quit()))
            close_once(self._transport)
            await asyncio.wait([self.lost], timeout=self._config.request_timeout_s)
            self._transport.abort()  # nobody reads any more
            await self.lost

    async def _beat(self) -> None:
        misses = 0
        while misses < _MISSES_MAX:
            idle_s = self._loop.time() - self._used_at
            if idle_s < self._config.heartbeat_s:
                await asyncio.sleep(self._config.heartbeat_s - idle_s)
                continue
            try:
                await self.ask(Version, timeout_s=self._config.request_timeout_s)
                misses = 0
            except RequestTimeoutError:
                misses += 1
            except ConnectionLostError:
                return
            except Exception:
                log.exception("heartbeat_failed address=%s; the connection is closed", self.address)
                break
        if self._transport is not None:
            close_once(self._transport)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one in all but its class.
        self._transport = cast("asyncio.Transport", transport)
        self._heartbeats = self._loop.create_task(self._beat())

    def data_received(self, data: bytes) -> None:
        self._used_at = self._loop.time()
        self._decoder.feed(data)
        try:
            while command := self._decoder.next_command():
                response = checked_response(command)
                answer = self._waiting.pop(response.opaque, None)
                if answer is not None and not answer.done():  # else it came too late: drop it
                    answer.set_result(response)
        except ProtocolError as error:
            self._fail(error)
            if self._transport is not None:
                close_once(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _fail(self, cause: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        if self._heartbeats is not None:
            self._heartbeats.cancel()
        self._writable.set()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ended(self.address, cause, self._config))


class Rooms(Protocol):
    """Lets puts in."""

    def room(self, size: int) -> AbstractAsyncContextManager[None]: ...


class Asking(Protocol):
    """The connections of one client, to those who ask brokers; with or without an event loop."""

    config: MetaqConfig

    @property
    def admission(self) -> Rooms: ...
    async def ask(
        self, address: str, make: Callable[[int], Request], *, timeout_s: float
    ) -> Response: ...
    async def together(self, asked: Iterable[Coroutine[None, None, T]]) -> Sequence[T]: ...
    async def close(self) -> None: ...


class TextConnections:
    """The connections of one client, opened when they are first needed."""

    def __init__(self, config: MetaqConfig) -> None:
        self.config = config
        self._connections = Connections(self._connect)
        self._trust = Trust(config)
        self.admission = Admission(count_max=_PUTS_MAX, bytes_max=_PUTS_BYTES_MAX)

    async def ask(
        self, address: str, make: Callable[[int], Request], *, timeout_s: float
    ) -> Response:
        """Ask one broker."""
        connection = await self._connections.get(address)
        return await connection.ask(make, timeout_s=timeout_s)

    async def together(self, asked: Iterable[Coroutine[None, None, T]]) -> Sequence[T]:
        """Have all of them done at once."""
        return await asyncio.gather(*asked)

    async def close(self) -> None:
        for connection in await self._connections.close():
            await connection.close()

    async def _connect(self, address: str) -> TextConnection:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: TextConnection(address, self.config),
                    host.strip("[]"),
                    int(port),
                    ssl=self._trust.context(),
                )
        except (OSError, UnicodeError) as error:
            waited_s = self.config.connect_timeout_s
            raise not_had(address, error, self.config, timeout_s=waited_s) from error
        if self.config.user is not None:
            await introduce_async(connection, self.config)
        return connection
