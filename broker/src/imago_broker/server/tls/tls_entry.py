"""New connections of a port that has TLS, until it is known which session serves them.

The first byte tells: a TLS handshake begins with 22, and no request of RocketMQ or HTTP does (it
would be a frame of 350 MB). Connections without TLS go to their session with that first read, and
cost nothing from then on. A handshake waits for its turn once its first message is whole, and is
measured until it is done. Those that say nothing, or do not finish their handshake, are closed in
`HANDSHAKE_SECONDS_MAX`; they count as connections of their address all the while.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING, Final, Protocol

from imago_broker.core.client_hello import HANDSHAKE_RECORD, ClientHello
from imago_broker.server.refusals import Refusals
from imago_broker.server.session import Session
from imago_broker.server.tls.handshake_steps import HandshakeSteps

if TYPE_CHECKING:
    from imago_broker.server.connection_places import Places
    from imago_broker.server.tls.handshake_queue import HandshakeQueue
    from imago_broker.server.tls.self_signed import SelfSigned
    from imago_broker.server.tls.tls_certificates import Certificates

HANDSHAKE_SECONDS_MAX: Final = 10


class TlsListener(Protocol):
    """The listener, as its door uses it."""

    port: int

    @property
    def places(self) -> Places:
        """Those of the whole process."""
        ...

    def make_session(self) -> Session:
        """Make what serves a new connection."""
        ...


class TlsDoor:
    """What the connections of one port have in common until they have their sessions."""

    def __init__(
        self,
        certificates: Certificates | SelfSigned,
        listener: TlsListener,
        queue: HandshakeQueue,
        *,
        plain_too: bool,
        of_admin: bool = False,
    ) -> None:
        """`queue`: that of the whole process. `of_admin`: the admin port asks for other things."""
        self.certificates = certificates
        self._of_admin = of_admin
        self.queue = queue
        self.plain_too = plain_too
        """Whether connections without TLS are served."""
        self.handshakes = 0
        """Those that were finished."""
        self.failures = Refusals("tls_handshake_failed")
        self._listener = listener

    @property
    def context(self) -> ssl.SSLContext:
        """Return the certificates and trust of a handshake that begins now."""
        found = self.certificates.contexts
        return found.admin if self._of_admin else found.server

    def entry(self) -> TlsEntry:
        """Make the protocol object of a new connection."""
        return TlsEntry(self)

    def make_session(self) -> Session:
        """Make what serves a connection from here on."""
        return self._listener.make_session()

    def failed(self, address: str, reason: str) -> None:
        """Count a connection that did not get a session."""
        listener = self._listener
        held = listener.places.held(address)
        self.failures.note(reason, port=listener.port, peer=address, held=held)


class TlsEntry(Session):
    """One connection whose session is not chosen yet."""

    def __init__(self, door: TlsDoor) -> None:
        self._door = door
        self._since_ms = time.monotonic_ns() // 1_000_000
        self._task: asyncio.Task[None] | None = None
        self._hello: ClientHello | None = None
        """What was read of a handshake that has not begun; while that waits, too."""
        self._early = b""
        """What came with the end of the handshake."""
        self._left = False
        self._timed_out = False
        self._waits = False
        """For its turn to have a handshake."""

    def data_received(self, data: bytes) -> None:
        if self._hello is not None:
            self._take(self._hello, data)
        elif self._task is not None:
            self._early += data
        elif data[0] == HANDSHAKE_RECORD:
            self._hello = ClientHello()
            self._take(self._hello, data)
        elif self._door.plain_too:
            self._pass_on(self.transport, data)
        else:
            self._door.failed(self.address, "the port serves TLS only")
            self.transport.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._left:
            self._left = True
            if self._waits and self._task is not None:
                self._task.cancel()
            super().connection_lost(exc)

    def sweep(self, now_ms: int) -> None:
        """End a connection whose peer takes too long."""
        if now_ms - self._since_ms > HANDSHAKE_SECONDS_MAX * 1000:
            self._timed_out = True
            self._door.failed(self.address, "no handshake in time")
            self.transport.abort()

    def _take(self, hello: ClientHello, data: bytes) -> None:
        """Begin the handshake once its first message is whole: cut in parts it costs as much.

        Who waits is read on: one that leaves has no turn.
        """
        whole = hello.add(data)
        if hello.problem:
            self._door.failed(self.address, hello.problem)
            self.transport.close()
        elif whole and self._task is None:
            self._waits = True
            self._task = asyncio.get_running_loop().create_task(self._secure(hello))

    async def _secure(self, hello: ClientHello) -> None:
        loop = asyncio.get_running_loop()
        await self._door.queue.wait(self.address)
        self._waits = False
        self._hello = None
        self.transport.pause_reading()
        begun = loop.create_task(
            loop.start_tls(
                self.transport,
                self,
                self._door.context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
            )
        )
        # It begins with its next turn, and is connected to the transport in the one after that,
        # in which nothing is read yet.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if self.transport.is_closing():
            begun.cancel()
            self.connection_lost(None)
            return
        steps = HandshakeSteps(self.transport, self._door.queue, self.address)
        if not begun.done():
            steps.begin(hello)
        # Raised here, an error would hold its task, and that the error, as its trace may: garbage
        # that is collected late, thousands at once, and holds up the loop.
        await asyncio.wait((begun,))
        if error := begun.exception():
            if not isinstance(error, (OSError, RuntimeError)):
                raise error
            error.__traceback__ = None
            del begun
            if not self._timed_out:
                self._door.failed(self.address, steps.problem or _reason(error))
            self.transport.abort()
            self.connection_lost(error)
            return
        secured = begun.result()
        assert secured is not None, "no other loop than ours gives None"
        steps.leave()
        self._door.handshakes += 1
        self._pass_on(secured, self._early)

    def _pass_on(self, transport: asyncio.Transport, data: bytes) -> None:
        """Have a session serve the connection from here on."""
        if self._left:
            return
        self._left = True
        self.pass_on(self._door.make_session(), transport, data)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return str(error) or "the peer has closed it"
