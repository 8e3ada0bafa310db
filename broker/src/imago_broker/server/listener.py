"""A listening port and its connections: accepts within limits, sweeps, drains.

Both protocols' sessions derive from `session.Session`, which tells its listener of its opening and
closing; the listener asks each session once a second whether it has become idle or stuck, so
that an idle connection costs no timer of its own.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.server.connection_places import KeptPlaces, Place, Places, Port
from imago_broker.server.refusals import Refusals
from imago_broker.server.session import Session
from imago_broker.server.tls.tls_entry import TlsDoor

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.server.tls.handshake_queue import HandshakeQueue
    from imago_broker.server.tls.self_signed import SelfSigned
    from imago_broker.server.tls.tls_certificates import Certificates

logger = logging.getLogger(__name__)

BACKLOG = 4096
"""Shorter queues turn a storm of connects into SYN retries: 114 a second instead of 47,000."""
SWEEP_SECONDS = 1.0
SWEEP_PAUSE_SECONDS = 0.005
SWEEP_COUNT = 100
"""Sessions asked at once: 500 held up everybody's answers for one to four milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one port may be asked for."""

    connections_max: int = 20_000


class Listener:
    """One TCP port: `bind` takes it, `serve` says with what, `start` accepts."""

    def __init__(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], Session] = Session,
        limits: ListenerLimits = ListenerLimits(),
        *,
        places: Places | None = None,
        places_kept: int = 0,
    ) -> None:
        """`serve` says what its connections are, once the parts behind them have the port.

        `places`: those of the whole process. `places_kept`: how many more are for this port's
        callers alone.
        """
        self.host = host
        self.port = port
        """The bound port, once started; 0 before then means any free one."""
        self.accepted = 0
        self.refusals = Refusals()
        self.door: TlsDoor | None = None
        """What connections come through before they have a session, where there is TLS."""
        self._introduce: Callable[[Listener], Session] | None = None
        self.on_open: list[Callable[[Session], None]] = []
        """Told each new connection, before anything is read from it."""
        self.protocol_factory = protocol_factory
        self.places = places or Places()
        self._limits = limits
        self._kept = KeptPlaces(places_kept)
        self._sessions: dict[Session, Place] = {}
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._left = asyncio.Event()
        self._unswept: list[Session] = []
        self._sock: socket.socket | None = None
        self.stopped = False
        """Whether it has been told to stop since it was started."""

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._sessions)

    @property
    def refused(self) -> int:
        """How many callers found no place."""
        return self.refusals.count

    @property
    def sessions(self) -> frozenset[Session]:
        """The connections that are open at this moment."""
        return frozenset(self._sessions)

    def secure(
        self,
        certificates: Certificates | SelfSigned,
        queue: HandshakeQueue,
        *,
        plain_too: bool,
        of_admin: bool = False,
    ) -> None:
        """Serve TLS from `start` on. `plain_too`: connections without it as well."""
        self.door = TlsDoor(certificates, self, queue, plain_too=plain_too, of_admin=of_admin)

    def serve(self, protocol_factory: Callable[[], Session]) -> None:
        """Have each new connection served by what this returns."""
        self.protocol_factory = protocol_factory

    def bind(self) -> socket.socket:
        """Take the port without accepting yet; OSError when it cannot be had."""
        if self._sock is None:
            self._sock = bound_socket(self.host, self.port)
            self.port = self._sock.getsockname()[1]
        return self._sock

    async def start(self) -> None:
        """Bind and accept; OSError when the port cannot be had."""
        loop = asyncio.get_running_loop()
        sock = self.bind()
        self.stopped = False
        self._server = await loop.create_server(self._make, sock=sock, backlog=BACKLOG)
        self._sock = None
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    async def until_connections(self, count: int) -> None:
        """Wait until at most `count` connections are open."""
        while len(self._sessions) > count:
            self._left.clear()
            await self._left.wait()

    async def stop(self, *, drain_seconds: float = 0.0) -> None:
        """Accept no more, let the sessions finish what is in flight, then close them."""
        self.stopped = True
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for session in tuple(self._sessions):
            session.drain()
        if self._sessions and drain_seconds > 0:
            await self._wait_until_empty(drain_seconds)
        for session in tuple(self._sessions):
            session.transport.abort()
        await self._wait_until_empty(1.0)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def admit(self, session: Session) -> bool:
        """Count a new connection, or say that there is no place for it."""
        if self.stopped:
            return False  # accepted just before, and not yet a session when the others were ended
        if session in self._sessions:
            return True  # it has the place of the one that was there before
        port = Port(len(self._sessions), self._limits.connections_max, self._kept)
        place = self.places.take(session.address, port)
        if isinstance(place, str):
            self.refusals.note(
                place, port=self.port, peer=session.address, held=self.places.held(session.address)
            )
            return False
        self.accepted += 1
        self._sessions[session] = place
        return True

    def opened(self, session: Session) -> None:
        """Call the listeners: a connection that was admitted can be used."""
        for tell in self.on_open if session in self._sessions else ():
            tell(session)

    def leave(self, session: Session) -> None:
        """Forget a closed connection. Connections that were refused are unknown here."""
        place = self._sessions.pop(session, None)
        if place is None:
            return
        self.places.leave(place)
        self._left.set()

    def replace(self, session: Session, following: Session) -> None:
        """Give a connection's place to the session that serves it from now on."""
        place = self._sessions.pop(session, None)
        if place is not None:
            self._sessions[following] = place

    def make_session(self) -> Session:
        """Make what serves a new connection."""
        session = self.protocol_factory() if self._introduce is None else self._introduce(self)
        session.listener = self
        return session

    def take_introductions(self, make: Callable[[Listener], Session]) -> None:
        """Have new connections served by what looks for introductions first."""
        self._introduce = make

    def make_introduced(self) -> Session:
        """Make what serves a connection whose client is known."""
        session = self.protocol_factory()
        session.listener = self
        return session

    def _make(self) -> Session:
        if self.door is None:
            return self.make_session()
        entry = self.door.entry()
        entry.listener = self
        return entry

    def _sweep(self) -> None:
        """Ask some sessions; after the last of them wait for the rest of the second."""
        now_ms = time.monotonic_ns() // 1_000_000
        waiting = self._unswept or list(self._sessions)
        asked, self._unswept = waiting[:SWEEP_COUNT], waiting[SWEEP_COUNT:]
        for session in asked:
            if session in self._sessions:
                session.sweep(now_ms)
        pause = SWEEP_PAUSE_SECONDS
        if not self._unswept:
            pause = SWEEP_SECONDS
            self.refusals.say()
            if self.door is not None:
                self.door.failures.say()
        self._sweeper = asyncio.get_running_loop().call_later(pause, self._sweep)

    async def _wait_until_empty(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.until_connections(0), seconds)
        except TimeoutError:
            logger.warning("drain_incomplete port=%d open=%d", self.port, len(self._sessions))


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket; OSError names the address.

    Made with IPPROTO_TCP: asyncio sets TCP_NODELAY on accepted sockets only when the listening
    socket says which protocol it is, and without it a request takes 44 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {_reason(error)}") from error
    return sock


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            "the port is in use by another process, or by an outgoing connection"
            " (choose ports outside of net.ipv4.ip_local_port_range: below 32768)"
        )
    return error.strerror or str(error)
