"""A connection to a member that is not the master, which the master serves all the same.

SDKs ask for routes every half a minute only, and until then call the broker that was the master. A
member that follows passes such a connection on as it is, byte by byte, over one of its own to the
master's port. It is decided before anything of the connection was answered, so that neither side
knows. With access control the master learns first whose connection it is, as for the other ports;
and always, by one byte, that it is passed on, so that no two members pass it to each other.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from imago_broker.model.access.users import Introduced
from imago_broker.server.introductions import target_of
from imago_broker.server.relay.relay import CONNECT_SECONDS_MAX, Address
from imago_broker.server.relay.upstream import Upstream

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from imago_broker.server.connection_places import Places
    from imago_broker.server.introductions import Introductions
    from imago_broker.server.session import Session
    from imago_broker.server.tls.tls_certificates import Certificates

log = logging.getLogger(__name__)

RELAYED: Final = b"\xf2"
"""The first byte of a connection that a member passes on: none of HTTP/2, TLS or introductions."""


class RelayedSession(Protocol):
    """The session of the client, as its relay uses it."""

    transport: asyncio.Transport

    def serve_here(self, data: bytes) -> None:
        """Serve the connection, of which this has come."""
        ...


class GrpcRelays:
    """Opens relays to whoever is the master."""

    def __init__(
        self,
        to: Callable[[], Address | None],
        *,
        connects: asyncio.Semaphore,
        places: Places,
        certificates: Callable[[], Certificates | None],
        introductions: Introductions | None,
    ) -> None:
        """`to`: where the master is; None: it is here, or nobody knows."""
        self.to = to
        self._connects, self._places = connects, places
        self._certificates, self._introductions = certificates, introductions

    def open(self, session: Session, client: RelayedSession, data: bytes) -> GrpcRelay | None:
        """Pass a connection on, of which this has come; None: it is to be served here."""
        to = self.to()
        if to is None or not self._places.take_own():
            return None
        made, introduction = self._introductions, b""
        if made is not None:
            host, port = session.peer_name[:2]
            told = Introduced(session.certificate_user, host, port)
            introduction = made.written(told, target_of(*to))
        certificates = self._certificates()
        relay = GrpcRelay(client, to, data, self._places.leave_own)
        relay.upstream.open(
            *to,
            self._connects,
            CONNECT_SECONDS_MAX,
            certificates.contexts.client if certificates and session.secure else None,
            introduction,
        )
        return relay


class GrpcRelay:
    """One connection that is passed on."""

    def __init__(
        self, client: RelayedSession, to: Address, data: bytes, on_end: Callable[[], None]
    ) -> None:
        self.to = to
        self._client, self._on_end = client, on_end
        self._held = bytearray(data)
        """What has come before the master's connection stood."""
        self._stands = self._ended = False
        self.upstream = Upstream(self)
        client.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Pass on what the client says."""
        if self._stands:
            self.upstream.write(data)
        else:
            self._held += data

    def client_slow(self, slow: bool) -> None:
        """The client takes nothing for now, or again."""
        self.upstream.read(not slow)

    def end(self) -> None:
        """The client's connection is over."""
        if not self._ended:
            self._ended = True
            self.upstream.close()
            self._on_end()

    def connected(self, upstream: Upstream) -> None:
        """The master's connection stands."""
        self._stands = True
        upstream.write(RELAYED + bytes(self._held))
        self._held.clear()
        self.upstream_slow(False)

    def answer(self, upstream: Upstream, data: bytes) -> None:
        """The master said this."""
        del upstream
        self._client.transport.write(data)

    def upstream_slow(self, slow: bool) -> None:
        """The master takes nothing for now, or again."""
        transport = self._client.transport
        if not transport.is_closing():
            (transport.pause_reading if slow else transport.resume_reading)()

    def upstream_lost(self, upstream: Upstream, reason: str) -> None:
        """The master is gone: the client begins again; or not reached, and it is served here."""
        del upstream
        log.info("relay_lost to=%s reason=%s", target_of(*self.to), reason)
        self.end()
        if self._stands:
            self._client.transport.close()
        else:
            self.upstream_slow(False)
            self._client.serve_here(bytes(self._held))
