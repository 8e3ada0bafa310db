"""Following one leader in one epoch: reconnects until it has to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from imago_broker.core.repeated_lines import RepeatedLines
from imago_broker.replication.follower.follower_session import FollowerSession
from imago_broker.replication.links.link import Link, prepared
from imago_broker.replication.links.secure_link import SecureLink

if TYPE_CHECKING:
    import random

    from imago_broker.model.registry.shard import Member
    from imago_broker.replication.follower.follower_session import Owner
    from imago_broker.replication.links.member import ThisMember
    from imago_broker.replication.links.member_tls import MemberTls

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 1.0


class Following:
    """One leader of one epoch that we have promised ourselves to."""

    def __init__(
        self,
        leader: Member,
        epoch: int,
        this: ThisMember,
        owner: Owner,
        *,
        tls: MemberTls | None,
        rng: random.Random,
    ) -> None:
        self.leader = leader
        self.epoch = epoch
        self.session: FollowerSession | None = None
        """The connection as it stands; None between two."""
        self._lost = ""
        self._this, self._owner, self._tls = this, owner, tls
        self._plain_next = False
        """Whether the leader does not answer with TLS, and need not."""
        self._called: SecureLink | None = None
        self._clock = this.clock
        self._rng = rng
        self._pause_seconds = PAUSE_SECONDS_MIN
        self._lines = RepeatedLines(this.clock.monotonic_ms)
        self._ended = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def obstacle(self) -> str:
        """Why the last connection ended, until one has brought something that was taken."""
        return "" if self.agreed else self._lost

    @property
    def agreed(self) -> bool:
        """Whether a connection brings the leader's log: one that falls silent is closed."""
        return self.session is not None and self.session.agreed

    def fetch(self, offset: int, last_epoch: int) -> None:
        """Continue our log from here, where the leader was compared with."""
        if self.session is not None:
            self.session.fetch(offset, last_epoch)

    def hang_up(self, why: str) -> None:
        """Close this connection and make another."""
        if self.session is not None:
            self.session.end(why)

    def tick(self) -> None:
        """Give up a silent leader; a few times a second."""
        if self.session is not None:
            self.session.tick(self._clock.monotonic_ms())

    def durable_moved(self) -> None:
        """Tell the leader that more is on disk."""
        if self.session is not None:
            self.session.durable_moved()

    def connection_ended(self, reason: str) -> None:
        """Note that the session is over; the owner passes this on from the session."""
        session, self.session = self.session, None
        if session is None:
            return
        if self._tls is not None and self._tls.plain_too and self._called is not None:
            self._plain_next = self._called.unanswered
        self._lost = reason
        self._log_once("replication_disconnected", reason)
        if session.agreed:
            self._pause_seconds = PAUSE_SECONDS_MIN
        self._ended.set()

    def _log_once(self, event: str, reason: str) -> None:
        if times := self._lines.due(event, reason):
            logger.info("%s leader=%s times=%d reason=%s", event, self.leader.uuid, times, reason)

    def close(self) -> None:
        """Stop following."""
        self._task.cancel()
        if self.session is not None:
            self.session.close()
            self.session = None

    async def _run(self) -> None:
        while True:
            self._ended.clear()
            try:
                if await self._connect():
                    await self._ended.wait()
            except Exception:
                # A fault of ours must not leave this member without a leader for good.
                logger.exception("replication_connect_failed leader=%s", self.leader.uuid)
            # With jitter: all followers of a leader lose it at the same moment.
            await asyncio.sleep(self._pause_seconds * self._rng.uniform(0.5, 1.0))
            self._pause_seconds = min(self._pause_seconds * 2, PAUSE_SECONDS_MAX)

    async def _connect(self) -> bool:
        record = self._this.identity.live(self.leader.uuid)
        if record is None or record.incarnation != self.leader.incarnation:
            return False
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                sock = await _connected(record.host, record.replication)
        except (OSError, TimeoutError) as error:
            reason = f"{record.replication_address}: {str(error) or 'no answer'}"
            self._log_once("replication_unreachable", reason)
            self._lost = reason
            return False
        self.session = FollowerSession(
            self._link(sock),
            self._this,
            self._owner,
            leader=self.leader,
            epoch=self.epoch,
            now_ms=self._clock.monotonic_ms(),
        )
        self.session.greet()
        return self.session is not None

    def _link(self, sock: socket.socket) -> Link:
        loop, self._called = asyncio.get_running_loop(), None
        plain, self._plain_next = self._plain_next, False
        if self._tls is None or plain:
            return Link(sock, loop)
        self._called = SecureLink(sock, loop, self._tls, calls=True)
        return self._called


async def _connected(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    sock = prepared(socket.socket(family, kind, protocol))
    try:
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
