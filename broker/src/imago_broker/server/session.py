"""One connection as its listener, and a relay that takes it over, see it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.server.relay_ledgers import Ledger
    from imago_broker.server.unfinished import Unfinished
    from imago_wire.remoting.command import RemotingCommand

TAKEN_OVER = 1
"""Another broker is about to take the connection over."""
OWN_REQUEST = 2
"""A request of the connection needs time, and the order of its requests is kept."""


class SessionListener(Protocol):
    """The listener, as its sessions use it."""

    def admit(self, session: Session) -> bool:
        """Give the connection a place; False: it is refused."""
        ...

    def opened(self, session: Session) -> None:
        """The session is ready for what comes."""

    def leave(self, session: Session) -> None:
        """The connection is gone."""


class Takeover(Protocol):
    """A relay, as the session that it has a connection from uses it."""

    def take(self, session: Session, ledger: Ledger, unread: bytes, *, slow: bool) -> None:
        """Become the protocol of the connection."""

    def finish(self, *, patient: bool = False) -> None:
        """Give the connection back."""

    def steer(self) -> None:
        """Read from each side only while the other takes what comes."""


class Session(asyncio.Protocol):
    """One connection as its listener sees it. Derived classes call these methods' originals."""

    listener: SessionListener | None = None
    transport: asyncio.Transport
    address: str = ""
    """The peer's address, without its port."""
    heartbeat: RemotingCommand | None = None
    """The last one that was served, where the protocol has them: what the peer is."""
    unfinished: Unfinished
    """The account of what has come of a command that is not whole."""
    _watchers: dict[Callable[[], None], None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, or drop it at once when the listener is full."""
        self.transport = cast("asyncio.Transport", transport)
        self._watchers = {}
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        if self.listener is not None and not self.listener.admit(self):
            self.transport.abort()

    def opened(self) -> None:
        """Derived classes call this when they are ready for what comes, and before it does."""
        if self.listener is not None:
            self.listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the listener; `exc` is the reason when the peer did not close in order."""
        del exc
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            watcher()
        if self.listener is not None:
            self.listener.leave(self)

    def sweep(self, now_ms: int) -> None:
        """Look, once a second, whether the connection is idle or stuck. `now_ms`: monotonic."""

    def drain(self) -> None:
        """Read nothing more, answer what is in flight, then close."""
        self.transport.close()

    def hold(self) -> None:
        """Read and serve nothing until `release`; answers still go out."""

    def release(self) -> None:
        """Go on, unless a relay has the connection."""

    def hand_over(self, relay: Takeover) -> bool:
        """Leave the connection to a relay at the next border between two requests.

        Where one has it already, as soon as that has ended. False: the connection is at its end.
        """
        del relay
        return False

    def take_back(self, relay: Takeover, unread: bytes) -> None:
        """Go on where a relay ends, with what it has read and not passed on; or hold that."""

    def steer_reading(self) -> None:
        """Read, or do not, as everything says that has a say in it."""

    def abort(self) -> None:
        """Close at once and drop what is not sent."""
        self.transport.abort()

    def touch(self) -> None:
        """Note that the connection is in use."""

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the connection is gone."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Take a watcher back."""
        self._watchers.pop(watcher, None)
