"""A handshake from its turn to its end: steps are counted, a second first message has a turn."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from imago_broker.core.client_hello import FIRST_BYTES_MAX, SecondHello
from imago_broker.server.tls.handshake_queue import HandshakeCost

if TYPE_CHECKING:
    from imago_broker.core.client_hello import ClientHello
    from imago_broker.server.tls.handshake_queue import HandshakeQueue


class HandshakeSteps(asyncio.BufferedProtocol):
    """Stands before the protocol that TLS is spoken by until its handshake is done: which of the
    steps is costly is up to the peer."""

    def __init__(self, transport: asyncio.Transport, queue: HandshakeQueue, address: str) -> None:
        self.problem = ""
        """Why the handshake was ended here."""
        self._transport, self._queue, self._address = transport, queue, address
        self._tls: Any = transport.get_protocol()
        self._cost = HandshakeCost(queue)
        self._buffer = bytearray(FIRST_BYTES_MAX)
        self._second = SecondHello()
        self._task: asyncio.Task[None] | None = None
        """Waits for a turn."""

    def begin(self, hello: ClientHello) -> None:
        """Answer the first message, whose turn it is, and count what follows."""
        self._transport.set_protocol(self)
        self._step(hello.message)
        if hello.behind and not self._transport.is_closing():
            self._look(hello.behind)

    def leave(self) -> None:
        """What comes from now on is served, and costs nothing more."""
        if self._task is not None:
            self._task.cancel()
            self._go_on()
        self._transport.set_protocol(self._tls)
        feed(self._tls, self._second.rest())

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._look(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        found: bool | None = self._tls.eof_received()
        return found

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
        # Without a reason uvloop takes the handshake for done.
        self._tls.connection_lost(exc or ConnectionAbortedError("closed in the handshake"))

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        self._tls.resume_writing()

    def _look(self, data: bytes) -> None:
        if known := self._second.add(data):
            self._step(known)
        if self._transport.is_closing():
            return
        if self._second.problem:
            self._refuse()
        elif self._second.is_due and self._task is None:
            self._transport.pause_reading()
            self._task = asyncio.get_running_loop().create_task(self._again())

    async def _again(self) -> None:
        while self._second.is_due and not self._transport.is_closing():
            await self._queue.wait(self._address)
            self._cost.again()
            self._step(self._second.after_turn())
            if self._second.problem:
                self._refuse()
        self._task = None
        self._go_on()

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _refuse(self) -> None:
        self.problem = self._second.problem
        self._transport.abort()

    def _step(self, data: bytes) -> None:
        began_s = time.thread_time()
        feed(self._tls, data)
        self._cost.took(time.thread_time() - began_s)


def feed(protocol: Any, data: bytes) -> None:
    """Give what was read elsewhere to the protocol that TLS is spoken by."""
    view = memoryview(data)
    while view:
        buffer = protocol.get_buffer(len(view))
        size = min(len(buffer), len(view))
        buffer[:size] = view[:size]
        protocol.buffer_updated(size)
        view = view[size:]
