"""A blocking peer that sends any bytes at all and sees what comes back."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

WAIT_SECONDS = 60.0
"""Only so that a test that would hang fails instead."""
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the other side did: bytes that it sent, and whether it closed."""

    data: bytes
    closed: bool


class WildPeer:
    """One connection."""

    def __init__(self, port: int, *, receive_buffer: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(WAIT_SECONDS)
        self._socket.connect(("127.0.0.1", port))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """Send it all; False when the other side closed meanwhile."""
        try:
            self._socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def send_until_refused(self, chunks: Iterable[bytes]) -> int:
        """Send one chunk after another until the other side closes; return how many bytes went."""
        size = 0
        for chunk in chunks:
            if not self.send(chunk):
                break
            size += len(chunk)
        return size

    def read(self) -> bytes:
        """Return what has come, at least one byte; empty when the other side closed."""
        with contextlib.suppress(ConnectionError):
            return self._socket.recv(_READ_BYTES)
        return b""

    def read_until(self, wanted: bytes) -> Reaction:
        """Read until the bytes come or the other side closes. TimeoutError: neither happens."""
        data = b""
        while wanted not in data:
            some = self.read()
            if not some:
                return Reaction(data, closed=True)
            data += some
        return Reaction(data, closed=False)

    def read_to_end(self) -> bytes:
        """Read until the other side closes. TimeoutError: it does not."""
        data = b""
        while some := self.read():
            data += some
        return data

    def is_closed(self) -> bool:
        """Whether the other side has closed; what it has sent stays to be read."""
        self._socket.setblocking(False)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        finally:
            self._socket.settimeout(WAIT_SECONDS)

    @property
    def own_port(self) -> int:
        """The local port: what the broker knows the connection by."""
        port: int = self._socket.getsockname()[1]
        return port

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)


def says_nothing_of_itself(data: bytes) -> None:
    """An answer is for the client: no trace, no source file."""
    for word in (b"Traceback", b'File "', b"Error(", b".py"):
        assert word not in data, data[:500]
