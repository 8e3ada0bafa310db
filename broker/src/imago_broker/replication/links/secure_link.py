"""A connection between two members over TLS, on the same socket and with the same calls.

The bytes are encrypted in this process, in buffers of OpenSSL's that hold at most one chunk. Log
bytes that are in files are read for it: `sendfile` cannot encrypt them.
"""

from __future__ import annotations

import os
import ssl
import time
from typing import TYPE_CHECKING, Final, Protocol

from imago_broker.core.client_hello import (
    HANDSHAKE_RECORD,
    ClientHello,
    SecondHello,
)
from imago_broker.replication.links.link import Link
from imago_broker.replication.links.member_tls import reason_of
from imago_log.results import FileSlice
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable

    from imago_broker.replication.links.link import LinkOwner
    from imago_broker.replication.links.member_tls import MemberTls

CHUNK_BYTES: Final = 256 << 10
"""What is encrypted at a time, and then handed to the kernel."""
READ_BYTES: Final = 256 << 10
TLS_RECORDS: Final = (21, HANDSHAKE_RECORD)
"""First byte of what TLS answers first: an alert, or a handshake."""


class StepCost(Protocol):
    """Counts the steps of one handshake."""

    def took(self, seconds: float) -> None:
        """Count one."""

    def again(self) -> None:
        """The next answers a first message again."""


class HandshakeAdmission(Protocol):
    """Who of all that call this process has its handshake next."""

    def cost(self) -> StepCost:
        """Count what a handshake takes."""
        ...

    async def wait(self, address: str, *, member: bool) -> None:
        """Return once a handshake may begin."""


class _Waiting:
    """A caller's first messages, each until it is whole and has its turn."""

    def __init__(
        self, handshakes: HandshakeAdmission, *, member: bool, on_turn: Callable[[bool], None]
    ) -> None:
        self.handshakes, self.member, self.on_turn = handshakes, member, on_turn
        self.cost = handshakes.cost()
        self.first: ClientHello | None = ClientHello()
        self.whole = False
        """The first one."""
        self.second = SecondHello()
        self.task: asyncio.Task[None] | None = None

    def add(self, data: bytes) -> bytes:
        """Take what was read; return what TLS may have at once. ValueError: TLS may not have it."""
        if self.first is None:
            known = self.second.add(data)
            self._check(self.second.problem)
            return known
        if not self.first.data and data[0] != HANDSHAKE_RECORD:
            self.first = None  # it speaks no TLS, which says so
            return self.second.add(data) + self.second.rest()
        self.whole = self.first.add(data)
        self._check(self.first.problem)
        return b""

    @property
    def is_due(self) -> bool:
        """Whether there is something that TLS may have after a turn."""
        return self.whole if self.first is not None else self.second.is_due

    def after_turn(self) -> bytes:
        """Return what had its turn, and what TLS may have behind it. ValueError: as above."""
        if self.first is None:
            said = self.second.after_turn()
        else:
            said = self.first.message + self.second.add(self.first.behind)
            self.first = None
        self._check(self.second.problem)
        return said

    @staticmethod
    def _check(problem: str) -> None:
        if problem:
            raise WrongError(problem)


class SecureLink(Link):
    """Nothing passes in either direction until the other side is known to be a member."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        tls: MemberTls,
        *,
        calls: bool,
        on_known: Callable[[Link], None] | None = None,
        on_refused: Callable[[Link, str], None] | None = None,
    ) -> None:
        """`calls`: this side has made the connection; `on_refused` hears who is no member."""
        super().__init__(sock, loop, on_known)
        self.is_plain = False
        """Whether the caller has begun without TLS, and may."""
        self.unanswered = calls
        """Whether the other side has not answered with TLS."""
        self._tls = tls
        self._on_refused = on_refused
        self._unknown = not calls and tls.plain_too
        """Whether it is not known yet if the caller speaks TLS."""
        self._open = False
        self._cipher = memoryview(b"")
        """What is encrypted and not taken by the kernel yet."""
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = tls.calling() if calls else tls.accepting()
        self._session = context.wrap_bio(self._arrived, self._leaving, server_side=not calls)
        self._calls = calls
        self._waiting: _Waiting | None = None
        """None: handshakes do not wait, or this one is done."""

    def queue_in(
        self, handshakes: HandshakeAdmission, *, member: bool, on_turn: Callable[[bool], None]
    ) -> None:
        """Have a caller's handshake wait for its turn; `on_turn` hears when it waits, and when not.

        `member`: whether one may call from there.
        """
        self._waiting = _Waiting(handshakes, member=member, on_turn=on_turn)

    @property
    def waits(self) -> bool:
        """Whether a caller's handshake waits for its turn."""
        return self._waiting is not None and self._waiting.task is not None

    def start(self, owner: LinkOwner) -> None:
        """Read from now on, for this owner; who has called begins the handshake."""
        super().start(owner)
        if self._calls:
            self._shake_hands()
            self.flush()

    def _deliver(self, data: bytes, owner: LinkOwner) -> None:
        if self._unknown:
            self._unknown = False
            self.is_plain = data[0] != HANDSHAKE_RECORD
            if self.is_plain:
                self.flush()
        if self.is_plain:
            super()._deliver(data, owner)
            return
        self.unanswered = self.unanswered and data[0] not in TLS_RECORDS
        if self._waiting is not None:
            data = self._known(self._waiting, data, owner)
        if data:
            self._take(data, owner)

    def _known(self, waiting: _Waiting, data: bytes, owner: LinkOwner) -> bytes:
        """Return what TLS may have at once; what may cost much waits for its turn."""
        try:
            known = waiting.add(data)
        except ValueError as error:
            self._refuse(str(error))
            return b""
        if waiting.is_due:
            self._loop.remove_reader(self._sock.fileno())
            waiting.task = self._loop.create_task(self._wait_while_due(waiting, owner))
        return known

    async def _wait_while_due(self, waiting: _Waiting, owner: LinkOwner) -> None:
        while waiting.is_due and not self.closed:
            waiting.on_turn(True)
            await waiting.handshakes.wait(self.peer, member=waiting.member)
            if not self.closed:
                waiting.on_turn(False)
                waiting.cost.again()
                self._take_after_turn(waiting, owner)
        waiting.task = None
        if not self.closed:
            self._loop.add_reader(self._sock.fileno(), self._readable, owner)

    def _take_after_turn(self, waiting: _Waiting, owner: LinkOwner) -> None:
        try:
            said = waiting.after_turn()
        except ValueError as error:
            self._refuse(str(error))
        else:
            self._take(said, owner)

    def _close(self) -> None:
        if self._waiting is not None and self._waiting.task is not None:
            self._waiting.task.cancel()
        super()._close()

    def _take(self, data: bytes, owner: LinkOwner) -> None:
        self._arrived.write(data)
        try:
            if self._open or self._shake_hands():
                self._read(owner)
        except ssl.SSLError as error:
            self._refuse(reason_of(error))

    def _shake_hands(self) -> bool:
        """Go on with the handshake; return whether the other side is known to be a member."""
        began_s = time.thread_time()
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            self.flush()
            return False
        finally:
            if self._waiting is not None:
                self._waiting.cost.took(time.thread_time() - began_s)
        if problem := self._tls.problem(self._session.getpeercert()):
            self._refuse(problem)
            return False
        if self._waiting is not None:
            self._arrived.write(self._waiting.second.rest())
        self._open, self._waiting = True, None
        self.flush()
        return not self.closed

    def _read(self, owner: LinkOwner) -> None:
        parts, ended = list[bytes](), False
        try:
            while part := self._session.read(READ_BYTES):
                parts.append(part)
            ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        if self._leaving.pending:
            self.flush()
        if parts:
            super()._deliver(b"".join(parts), owner)
        if ended:
            self._lost("closed by the other side")

    def _refuse(self, reason: str) -> None:
        self._queue.clear()
        self.flush()  # the alert says why
        if self._on_refused is not None and not self._open:
            self._on_refused(self, reason)
        self._lost(reason)

    def _send_all(self) -> None:
        if self.is_plain:
            super()._send_all()
            return
        while self._cipher or self._encrypt():
            sent = self._sock.send(self._cipher)
            self.pending -= sent
            self._cipher = self._cipher[sent:]

    def _encrypt(self) -> bool:
        """Encrypt the next chunk; return whether there is anything to send."""
        plain = 0
        while self._open and self._queue and plain < CHUNK_BYTES:
            part = self._next(CHUNK_BYTES - plain)
            plain += len(part)
            while part:
                part = part[self._session.write(part) :]
        self._cipher = memoryview(self._leaving.read())
        self.pending += len(self._cipher) - plain
        return bool(self._cipher)

    def _next(self, size: int) -> memoryview:
        """Take so many bytes at most from the head of the queue."""
        head = self._queue.popleft()
        if isinstance(head, FileSlice):
            part = memoryview(os.pread(head.fileno(), min(size, head.size), head.offset))
            if not part:
                raise OSError(f"a file of the log ends before byte {head.offset + head.size}")
            if len(part) < head.size:
                rest = FileSlice(head.file, head.offset + len(part), head.size - len(part))
                self._queue.appendleft(rest)
            return part
        if len(head) > size:
            self._queue.appendleft(head[size:])
        return head[:size]
