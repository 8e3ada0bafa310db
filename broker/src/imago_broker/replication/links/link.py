"""One connection between two members: frames out, bytes in, on a socket of our own.

No transport of the event loop's, for two reasons: all frames of a turn leave in one system call
that says how much the kernel took, and log bytes that are in files only go from the page cache to
the socket without passing through this process (`sendfile`: half the processor time of reading
and sending them, on loopback).
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Protocol

from imago_log.results import FileSlice

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 256 << 10
UNREAD_BYTES_MAX = 16 << 20
"""What a peer may ask for and not read: some answers of the largest size."""
BUFFERS_MAX = 64
"""Buffers of one system call; the kernel allows 1,024."""


class LinkOwner(Protocol):
    """Serves a link."""

    def received(self, data: bytes) -> None:
        """Take what arrived, once a turn."""

    def drained(self) -> None:
        """The kernel has taken everything."""

    def lost(self, reason: str) -> None:
        """The link has ended; called once, and not where the owner itself closed it."""


class Link:
    """A connected socket. All calls and callbacks belong to the event loop's thread."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_known: Callable[[Link], None] | None = None,
    ) -> None:
        """`on_known` gets the link once its owner has found that the caller is a member."""
        self.peer = _peer(sock)
        """Address of the other side, without its port."""
        self.pending = 0
        """Bytes that the kernel has not taken yet."""
        self.closed = False
        self._owner: LinkOwner | None = None
        self._on_known = on_known
        self._sock = sock
        self._loop = loop
        self._queue: deque[memoryview | FileSlice] = deque()
        self._blocked = False

    @property
    def waits(self) -> bool:
        """Whether this side lets the other one wait before it can say anything."""
        return False

    def start(self, owner: LinkOwner) -> None:
        """Read from now on, for this owner."""
        self._owner = owner
        self._loop.add_reader(self._sock.fileno(), self._readable, owner)

    def known(self) -> None:
        """Tell the port that accepted the link that the caller is a member."""
        if self._on_known is not None:
            self._on_known(self)

    def send(self, *buffers: bytes | memoryview) -> None:
        """Queue bytes behind all others; `flush` sends them."""
        for buffer in buffers:
            if buffer:
                self._queue.append(memoryview(buffer))
                self.pending += len(buffer)

    def send_file(self, part: FileSlice) -> None:
        """Queue a part of a file; its bytes do not pass through this process."""
        self._queue.append(part)
        self.pending += part.size

    def flush(self) -> None:
        """Give the kernel what it takes now; the rest follows when it can."""
        if self._blocked or self.closed:
            return
        try:
            self._send_all()
        except BlockingIOError:
            self._blocked = True
            self._loop.add_writer(self._sock.fileno(), self._writable)
        except OSError as error:
            self._lost(f"send: {error}")

    def close(self) -> None:
        """Close; what was queued is given one more chance and the owner hears nothing."""
        if self.closed:
            return
        self.flush()
        self._close()

    def end(self, reason: str) -> None:
        """Close from outside: its owner hears that it is `lost`."""
        self.flush()
        self._lost(reason)

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        descriptor = self._sock.fileno()
        self._loop.remove_reader(descriptor)
        if self._blocked:
            self._loop.remove_writer(descriptor)
        self._queue.clear()
        self.pending = 0
        self._sock.close()

    def _lost(self, reason: str) -> None:
        if not self.closed:
            self._close()
            if self._owner is not None:
                self._owner.lost(reason)

    def _readable(self, owner: LinkOwner) -> None:
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(f"receive: {error}")
            return
        if not data:
            self._lost("closed by the other side")
            return
        self._deliver(data, owner)

    def _deliver(self, data: bytes, owner: LinkOwner) -> None:
        """Hand on what came."""
        try:
            owner.received(data)
        except Exception as error:
            # A fault of ours must not come again with the next bytes.
            logger.exception("replication_link_failed peer=%s", self.peer)
            self._lost(f"fault: {error}")

    def _writable(self) -> None:
        self._loop.remove_writer(self._sock.fileno())
        self._blocked = False
        self.flush()
        if self._owner is not None and not self.pending and not self.closed:
            self._owner.drained()

    def _send_all(self) -> None:
        queue = self._queue
        while queue:
            head = queue[0]
            if isinstance(head, FileSlice):
                self._send_file(head)
            else:
                self._send_buffers()

    def _send_buffers(self) -> None:
        queue, buffers = self._queue, list[memoryview]()
        for item in queue:
            if isinstance(item, FileSlice) or len(buffers) == BUFFERS_MAX:
                break
            buffers.append(item)
        sent = self._sock.sendmsg(buffers)
        self.pending -= sent
        while sent:
            head = buffers.pop(0)
            queue.popleft()
            if sent < len(head):
                queue.appendleft(head[sent:])
                return
            sent -= len(head)

    def _send_file(self, part: FileSlice) -> None:
        sent = os.sendfile(self._sock.fileno(), part.fileno(), part.offset, part.size)
        if not sent:
            raise OSError(f"a file of the log ends before byte {part.offset + part.size}")
        self.pending -= sent
        self._queue.popleft()
        if sent < part.size:
            rest = FileSlice(part.file, part.offset + sent, part.size - sent)
            self._queue.appendleft(rest)


def prepared(sock: socket.socket) -> socket.socket:
    """Set what every connection between members has."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def _peer(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except OSError:  # gone again already
        return "unknown"
