"""A blocking peer that sends any bytes at all and sees what comes back."""

from __future__ import annotations

import contextlib
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    import ssl
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
        self._port = port
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(WAIT_SECONDS)
        self._socket.connect(("127.0.0.1", port))

    def secure(self, context: ssl.SSLContext) -> None:
        """Have TLS from now on."""
        self._socket = context.wrap_socket(self._socket)

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
    def ports(self) -> tuple[int, int]:
        """The broker's port and the own one: what the broker knows the connection by.

        Two connections to different ports may have the same port of their own.
        """
        own: int = self._socket.getsockname()[1]
        return self._port, own

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)


OF_PYTHON: Final = re.compile(
    "|".join(
        (
            r"Traceback", r'File "', r"Error\(", r"\.py\b", r"invalid literal for",
            r"could not convert", r"update sequence", r"values? to unpack", r"unhashable",
            r"object (is|has|cannot|does)\b", r"NoneType", r"has no attribute", r"codec can't",
            r"positional argument", r"unexpected keyword", r"is not a valid [A-Z]\w+",
            r"index out of range", r"fromhex\(", r"indices must be", r"not supported between",
            r"Exceeds the limit", r"\(char [0-9]+\)", r"unexpected character: line",
            r"<class '", r"\b(str|int|bytes|list|dict) object",
        )
    ).encode()
)  # fmt: skip
"""What Python says of values and of itself."""


def says_nothing_of_itself(data: bytes) -> None:
    """An answer is for the client: no trace, no source file, no words of the language."""
    found = OF_PYTHON.search(data)
    assert found is None, (found[0], data[:500])
