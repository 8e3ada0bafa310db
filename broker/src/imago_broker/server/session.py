"""One connection as its listener sees it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, cast

from imago_broker.model.access.users import name_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from imago_broker.model.access.users import Introduced


class SessionListener(Protocol):
    """The listener, as its sessions use it."""

    def admit(self, session: Session) -> bool:
        """Give the connection a place; False: it is refused."""
        ...

    def opened(self, session: Session) -> None:
        """The session is ready for what comes."""

    def leave(self, session: Session) -> None:
        """The connection is gone."""

    def replace(self, session: Session, following: Session) -> None:
        """Give a connection's place to the session that serves it from now on."""


class Watchers:
    """Who is called when a connection is gone."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[Callable[[], None], None] = {}

    def add(self, call: Callable[[], None]) -> None:
        """Call it when the connection is gone."""
        self._calls[call] = None

    def remove(self, call: Callable[[], None]) -> None:
        """Take that back."""
        self._calls.pop(call, None)

    def tell(self) -> None:
        """The connection is gone."""
        calls, self._calls = self._calls, {}
        for call in calls:
            call()


def common_name(certificate: Any, issuers: Collection[Any] | None = None) -> str:
    """Return the one common name of a peer's checked certificate; "" where it has none, or two, or
    one that no user may have, or where somebody else than `issuers` has signed it."""
    if issuers is not None and (certificate or {}).get("issuer") not in issuers:
        return ""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 and not name_problem(names[0]) else ""


class Session(asyncio.Protocol):
    """One connection as its listener sees it. Derived classes call these methods' originals."""

    listener: SessionListener | None = None
    transport: asyncio.Transport
    address: str = ""
    """The peer's address, without its port."""
    secure = False
    """Whether the connection has TLS."""
    certificate_user = ""
    """Whom the peer's certificate names, which an authority of ours has made; empty: none."""
    introduced: Introduced | None = None
    """The client that another broker passes on over this connection; set before it is made."""
    peer_name: Sequence[Any] = ("", 0)
    """The peer's host and port."""
    watchers: Watchers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, or drop it at once when the listener is full."""
        self.transport = cast("asyncio.Transport", transport)
        self.watchers = Watchers()
        self.secure = transport.get_extra_info("sslcontext") is not None
        self.peer_name = transport.get_extra_info("peername") or ("", 0)
        if self.introduced is not None:
            self.certificate_user = self.introduced.user
            if self.introduced.host:
                self.peer_name = self.introduced[1:]
        elif self.secure:
            context = transport.get_extra_info("sslcontext")
            shown = transport.get_extra_info("peercert")
            self.certificate_user = common_name(shown, getattr(context, "client_issuers", None))
        self.address = self.peer_name[0]
        if self.listener is not None and not self.listener.admit(self):
            self.transport.abort()

    def pass_on(self, following: Session, transport: asyncio.Transport, data: bytes) -> None:
        """Leave the connection and what has come over it to another session."""
        if self.listener is not None:
            self.listener.replace(self, following)
        transport.set_protocol(following)
        following.connection_made(transport)
        if data:
            # Who has the connection by now: it may have been left to a relay at once.
            taker = cast("asyncio.Protocol", transport.get_protocol())
            taker.data_received(data)

    def opened(self) -> None:
        """Derived classes call this when they are ready for what comes, and before it does."""
        if self.listener is not None:
            self.listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the listener; `exc` is the reason when the peer did not close in order."""
        del exc
        self.watchers.tell()
        if self.listener is not None:
            self.listener.leave(self)

    def sweep(self, now_ms: int) -> None:
        """Look, once a second, whether the connection is idle or stuck. `now_ms`: monotonic."""

    def drain(self) -> None:
        """Read nothing more, answer what is in flight, then close."""
        self.transport.close()

    def abort(self) -> None:
        """Close at once and drop what is not sent."""
        self.transport.abort()
