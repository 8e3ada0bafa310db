"""A handshake from its turn to its end: steps are counted, a second first message has a turn."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from imago_broker.core.client_hello import FIRST_BYTES_MAX, SecondHello
from imago_broker.server.handshake_turns import HandshakeCost

if TYPE_CHECKING:
    from imago_broker.server.handshake_turns import HandshakeTurns


class HandshakeSteps(asyncio.BufferedProtocol):
    """Stands before the protocol that TLS is spoken by until its handshake is done: which of the
    steps is costly is up to the peer."""

    def __init__(self, transport: asyncio.Transport, turns: HandshakeTurns, address: str) -> None:
        self.problem = ""
        """Why the handshake was ended here."""
        self._transport, self._turns, self._address = transport, turns, address
        self._tls: Any = transport.get_protocol()
        self._cost = HandshakeCost(turns)
        self._buffer = bytearray(FIRST_BYTES_MAX)
        self._second: SecondHello | None = None
        """None: the peer says no other first message any more."""
        self._task: asyncio.Task[None] | None = None

    def begin(self, hello: bytes) -> None:
        """Answer the first message, whose turn it is, and count what follows."""
        self._transport.set_protocol(self)
        self._second = SecondHello()
        self._step(hello)

    def leave(self) -> None:
        """What comes from now on is served, and costs nothing more."""
        self._transport.set_protocol(self._tls)

    def get_buffer(self, sizehint: int) -> Any:
        return self._tls.get_buffer(sizehint) if self._second is None else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._second is not None:
            self._look(self._second, bytes(self._buffer[:nbytes]))
            return
        began_s = time.thread_time()
        self._tls.buffer_updated(nbytes)
        self._cost.took(time.thread_time() - began_s)

    def eof_received(self) -> bool | None:
        found: bool | None = self._tls.eof_received()
        return found

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
        self._tls.connection_lost(exc)

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        self._tls.resume_writing()

    def _look(self, second: SecondHello, data: bytes) -> None:
        if known := second.add(data):
            self._step(known)
        kept = second.kept
        if kept is None:
            return
        if not second.whole:
            if len(kept.data) > FIRST_BYTES_MAX:
                self.problem = "its second message is too long for a handshake"
                self._transport.abort()
            return
        self._second = None
        if kept.is_second:
            self._task = asyncio.get_running_loop().create_task(self._again(bytes(kept.data)))
        else:
            self._step(bytes(kept.data))

    async def _again(self, hello: bytes) -> None:
        self._transport.pause_reading()
        await self._turns.wait(self._address)
        self._cost.again()
        self._step(hello)
        if not self._transport.is_closing():
            self._transport.resume_reading()

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
