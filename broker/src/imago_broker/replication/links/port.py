"""The replication port: takes connections within limits, and remembers who was refused.

Whoever has not said who it is has one of few places, which the longest silent one loses. Callers
from the addresses of members have places of their own: what strangers do keeps no member out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol

from imago_broker.replication.links.link import Link, prepared
from imago_broker.replication.links.secure_link import SecureLink
from imago_broker.replication.links.unauthenticated_peers import Silent
from imago_wire.replication.encoder import encode
from imago_wire.replication.frames import RefusalCode, Refuse

if TYPE_CHECKING:
    from imago_broker.replication.links.member_tls import MemberTls
    from imago_broker.replication.links.secure_link import HandshakeAdmission

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
"""Of members: a shard has some, and each may come back before it is missed."""
SILENT_MAX = 64
SILENT_PER_ADDRESS_MAX = 8
"""Connections of strangers, and of one stranger's address, that have not said who they are."""
SILENT_MEMBERS_MAX = 128
"""Such connections from addresses of members."""
SILENT_SECONDS_MIN = 0.1
"""For so long one of these keeps its place, and further callers wait in the kernel's queue: where
strangers have the address of members a member, which greets at once, still has its turn."""
BACKLOG = 1024
"""Callers who wait for that turn."""
NAMED_MAX = 256
"""Peers whose refusal is written down; above it they are only counted."""
PAUSE_SECONDS = 1.0
"""How long nothing is taken when the process has no more file descriptors."""


class RefusedPeers:
    """Who was refused and why: one line a peer and reason, all of them counted."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        """Refusals by reason."""
        self.details: deque[str] = deque(maxlen=NAMED_MAX)
        """What the newest were told, or would have been."""
        self._named: set[tuple[str, str]] = set()

    def note(self, peer: str, reason: str, detail: str = "") -> None:
        """Count a refusal; log the first of its kind from this peer."""
        self.count[reason] += 1
        self.details.append(detail)
        if (peer, reason) in self._named or len(self._named) >= NAMED_MAX:
            return
        self._named.add((peer, reason))
        logger.warning("replication_refused peer=%s reason=%s detail=%s", peer, reason, detail)


class LinkTaker(Protocol):
    """Serves the connections of a port."""

    def take_link(self, link: Link) -> None:
        """Serve a connection; `gone` reports its end to the port."""

    def is_member(self, address: str) -> bool:
        """Return whether a member may call from this address."""
        ...


class ReplicationPort:
    """A listening socket; who starts it serves its connections."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        """The bound port, once bound; 0 before then means any free one."""
        self.tls: MemberTls | None = None
        """With what members connect; None: without TLS."""
        self._handshakes: HandshakeAdmission | None = None
        self.refused = RefusedPeers()
        self._strangers = Silent(SILENT_MAX, SILENT_PER_ADDRESS_MAX)
        self._members = Silent(SILENT_MEMBERS_MAX, SILENT_MEMBERS_MAX)
        self._sock: socket.socket | None = None
        self._links: set[Link] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resume: asyncio.TimerHandle | None = None

    def secure(self, tls: MemberTls | None, handshakes: HandshakeAdmission) -> None:
        """Connect with members by TLS from now on, or without; handshakes wait in this queue."""
        self.tls, self._handshakes = tls, handshakes

    @property
    def serves(self) -> bool:
        """Whether connections are accepted."""
        return self._sock is not None and self._loop is not None

    def bind(self) -> None:
        """Take the port without accepting yet; OSError when it cannot be had."""
        if self._sock is not None:
            return
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((self.host, self.port))
        except OSError as error:
            sock.close()
            reason = f"cannot listen on {self.host}:{self.port}: {error.strerror}"
            raise OSError(error.errno, reason) from error
        self.port = sock.getsockname()[1]
        self._sock = sock

    def start(self, taker: LinkTaker) -> None:
        """Accept from now on, for this taker."""
        assert self._sock is not None, "bound before"
        self._loop = asyncio.get_running_loop()
        self._sock.listen(BACKLOG)
        self._loop.add_reader(self._sock.fileno(), self._acceptable, taker)

    def refuse(self, link: Link, epoch: int) -> None:
        """Tell a caller that this member does not lead; it looks into the registry then."""
        link.send(encode(Refuse(epoch, RefusalCode.NOT_LEADER, "this member does not lead")))
        link.close()
        self.gone(link)

    def gone(self, link: Link) -> None:
        """Forget a connection that has ended."""
        self._links.discard(link)
        self._known(link)

    def stop(self) -> None:
        """Accept no more and close all connections. May be called again."""
        if self._resume is not None:
            self._resume.cancel()
        if self._sock is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None
        for link in tuple(self._links):
            link.close()
        self._links.clear()

    @property
    def silent(self) -> int:
        """Connections that have not said who they are."""
        return len(self._strangers) + len(self._members)

    def _known(self, link: Link) -> None:
        self._strangers.discard(link)
        self._members.discard(link)

    def _acceptable(self, taker: LinkTaker) -> None:
        assert self._sock is not None
        assert self._loop is not None
        wait = self._members.full_for(SILENT_SECONDS_MIN, self._loop.time())
        if wait > 0:
            self._pause(wait, taker)
            return
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            # Readable until somebody closes something: wait instead of spinning.
            self.refused.note("", "descriptors", str(error))
            self._pause(PAUSE_SECONDS, taker)
            return
        link = self._link(prepared(sock), self._loop, taker)
        members = len(self._links) - self.silent
        if members >= CONNECTIONS_MAX:
            self._busy(link, f"{members} connections")
            link.close()
            return
        places = self._members if taker.is_member(link.peer) else self._strangers
        for other in places.in_the_way(link.peer):
            self._busy(other, f"silent, and {len(places)} others are")
            other.end("another caller has its place")
            self.gone(other)
        self._links.add(link)
        places.add(link, self._loop.time())
        taker.take_link(link)

    def _link(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, taker: LinkTaker) -> Link:
        if self.tls is None:
            return Link(sock, loop, self._known)
        link = SecureLink(
            sock, loop, self.tls, calls=False, on_known=self._known, on_refused=self._no_member
        )
        if self._handshakes is not None:
            member = taker.is_member(link.peer)
            places = self._members if member else self._strangers

            def on_turn(waits: bool) -> None:
                if waits:
                    places.waits(link)
                else:
                    places.goes_on(link, loop.time())

            link.queue_in(self._handshakes, member=member, on_turn=on_turn)
        return link

    def _no_member(self, link: Link, reason: str) -> None:
        self.refused.note(link.peer, "tls", reason)

    def _pause(self, seconds: float, taker: LinkTaker) -> None:
        assert self._sock is not None
        assert self._loop is not None
        self._loop.remove_reader(self._sock.fileno())
        self._resume = self._loop.call_later(seconds, self.start, taker)

    def _busy(self, link: Link, detail: str) -> None:
        self.refused.note(link.peer, "busy", detail)
        link.send(encode(Refuse(0, RefusalCode.BUSY, detail)))
