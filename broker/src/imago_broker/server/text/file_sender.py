"""Parts of files straight from the kernel to a socket, as far as that takes them at once."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from imago_log.results import FileSlice

_HEAD_FLAGS = int(socket.MSG_MORE | socket.MSG_DONTWAIT)
"""Of an answer's head: what follows shares its packet."""


class FileSender:
    """Sends past one connection's transport, while that has nothing of its own to send.

    uvloop's transport has no sendfile, and it writes to the socket only while it has bytes left.
    """

    __slots__ = ("_socket",)

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def send(self, transport: asyncio.Transport, head: bytes, data: FileSlice) -> int:
        """Send what the socket takes at once; return how many bytes of head and file that is."""
        sock = self._socket
        if sock is None:
            fd = transport.get_extra_info("socket").fileno()
            # Borrowed: given back, not closed, when the connection is lost.
            sock = self._socket = socket.socket(
                socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd
            )
        sent = 0
        try:
            sent = sock.send(head, _HEAD_FLAGS)
            if sent < len(head):
                return sent
            target, source, end = sock.fileno(), data.fileno(), data.offset + data.size
            at = data.offset
            while at < end:
                moved = os.sendfile(target, source, at, end - at)
                if moved == 0:
                    break  # the file is shorter than it was: reading it will say why
                at += moved
                sent += moved
        except (BlockingIOError, InterruptedError):
            pass  # what is left goes through the transport
        except ConnectionError:
            transport.abort()
        return sent

    def end(self) -> None:
        """Give the socket back: the connection is lost."""
        if self._socket is not None:
            self._socket.detach()
            self._socket = None
