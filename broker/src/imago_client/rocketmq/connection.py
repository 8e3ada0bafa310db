"""One asyncio connection to one RocketMQ-protocol server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from imago_client.connections.admission import Admission
from imago_client.connections.closing import close_once
from imago_client.connections.reaching import ended
from imago_client.core.framing import request_frame
from imago_client.credentials import UserCredentials
from imago_client.errors import RequestTimeoutError
from imago_wire.errors import ProtocolError
from imago_wire.remoting.frame import FrameDecoder, encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.config import ClientConfig
    from imago_wire.remoting.command import RemotingCommand
    from imago_wire.remoting.fields import Header

_OPAQUE_MAX = (1 << 31) - 1
_GATHERED_BYTES_MAX = 1 << 20
"""What one turn gathers before it writes: beyond it the transport says when to go on."""


class Connection(asyncio.Protocol):
    """Matches answers to requests by their number; any number of requests may be in flight.

    What callers send within one turn of the loop leaves in one write.
    """

    def __init__(
        self,
        address: str,
        config: ClientConfig,
        on_request: Callable[[Connection, RemotingCommand], None],
    ) -> None:
        self.address = address
        self._config = config
        self._decoder = FrameDecoder(frame_bytes_max=config.frame_bytes_max)
        self._on_request = on_request
        self._credentials = UserCredentials.of(config)
        self._slots = Admission(count_max=config.in_flight_max, bytes_max=0)
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self._outgoing: list[bytes] = []
        self._gathered = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is gone."""

    async def ask(
        self, code: int, header: Header | None, body: bytes, *, timeout_s: float
    ) -> RemotingCommand:
        """Send a request and return its response. ConnectionLostError, RequestTimeoutError."""
        if not self._writable.is_set() or not self._slots.try_enter(0):
            timeout_s = await self._enter(timeout_s)
        try:
            opaque = self._write(code, header, body, oneway=False)
            answer: asyncio.Future[RemotingCommand] = self._loop.create_future()
            self._waiting[opaque] = answer
            overdue = self._loop.call_later(timeout_s, self._expire, answer, timeout_s)
            try:
                return await answer
            finally:
                overdue.cancel()
                self._waiting.pop(opaque, None)
        finally:
            self._slots.leave(0)

    async def _enter(self, timeout_s: float) -> float:
        """Wait until a request may be written; return how long its answer may take then."""
        deadline = self._loop.time() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._slots.enter(0)
                try:
                    await self._until_writable()
                except BaseException:
                    self._slots.leave(0)
                    raise
        except TimeoutError:
            raise RequestTimeoutError(self.address, timeout_s) from None
        return deadline - self._loop.time()

    def _expire(self, answer: asyncio.Future[RemotingCommand], timeout_s: float) -> None:
        if not answer.done():
            answer.set_exception(RequestTimeoutError(self.address, timeout_s))

    async def tell(self, code: int, header: Header | None, body: bytes) -> None:
        """Send a request that is never answered; return once it may be written."""
        await self._until_writable()
        self._write(code, header, body, oneway=True)

    def answer(self, command: RemotingCommand) -> None:
        """Send the response to a request of the server's."""
        self._queue(encode_frame(command))

    def close(self) -> None:
        """Close without waiting for answers: whoever waits for one gets ConnectionLostError."""
        if self._transport is not None:
            self._flush()
            close_once(self._transport)

    def abort(self) -> None:
        """Close without writing what still waits to be written."""
        if self._transport is not None:
            self._transport.abort()

    async def _until_writable(self) -> None:
        # Of all who wait, the first to go on may fill the buffer again.
        while not self._writable.is_set():
            await self._writable.wait()

    def _write(self, code: int, header: Header | None, body: bytes, *, oneway: bool) -> int:
        if self.lost.done():
            raise ended(self.address, None, self._config)
        self._opaque = (self._opaque + 1) & _OPAQUE_MAX
        frame = request_frame(
            code,
            header,
            body,
            opaque=self._opaque,
            oneway=oneway,
            credentials=self._credentials,
        )
        self._queue(frame)
        return self._opaque

    def _queue(self, frame: bytes) -> None:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)
        self._gathered += len(frame)
        if self._gathered > _GATHERED_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        frames, self._outgoing, self._gathered = self._outgoing, [], 0
        if frames and self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        try:
            while command := self._decoder.next_frame():
                self._receive(command)
        except ProtocolError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _receive(self, command: RemotingCommand) -> None:
        if not command.is_response:
            self._on_request(self, command)
            return
        answer = self._waiting.pop(command.opaque, None)
        if answer is not None and not answer.done():  # else it came too late: drop it
            answer.set_result(command)

    def _fail(self, cause: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self._writable.set()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ended(self.address, cause, self._config))
