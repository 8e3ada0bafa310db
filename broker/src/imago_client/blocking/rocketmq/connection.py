"""One blocking socket to one RocketMQ-protocol server."""

from __future__ import annotations

import io
import select
import socket
import struct
import time
from typing import TYPE_CHECKING, Final, cast

from imago_client.connections.reaching import ended, not_had
from imago_client.core.framing import request_frame
from imago_client.credentials import UserCredentials
from imago_client.errors import ConnectionLostError, RequestTimeoutError
from imago_client.tls import client_context
from imago_wire.errors import ProtocolError
from imago_wire.remoting.frame import check_frame_size, check_header_size, encode_frame
from imago_wire.remoting.header import decode_header

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from imago_client.config import ClientConfig
    from imago_wire.remoting.command import RemotingCommand
    from imago_wire.remoting.fields import Header

_PREFIX: Final = struct.Struct(">II")
_OPAQUE_MAX: Final = (1 << 31) - 1
_LARGE_BODY: Final = 1 << 16
"""From here on a body is worth a few calls more, so that it is not copied."""
_PEEK_AFTER_S: Final = 1.0
"""Check a connection that was unused for so long before using it again."""


class BlockingConnection:
    """Sends requests and receives answers in the caller's thread; not for two threads at once.

    Requests may be sent ahead: an answer that arrives while another is awaited is kept for its
    own `receive`.
    """

    def __init__(
        self,
        address: str,
        config: ClientConfig,
        on_request: Callable[[str, RemotingCommand], RemotingCommand | None],
    ) -> None:
        self.address = address
        self._config = config
        self._on_request = on_request
        self._opaque = 0
        self._answers: dict[int, RemotingCommand] = {}
        self._wanted: set[int] = set()
        self.used_at = time.monotonic()
        self._credentials = UserCredentials.of(config)
        self._is_tls = config.tls_ca_file is not None
        self._socket = self._connect()

    def send(self, code: int, header: Header | None, body: bytes, *, oneway: bool = False) -> int:
        """Write a request; return its number for `receive`."""
        self._opaque = (self._opaque + 1) & _OPAQUE_MAX
        frame = request_frame(
            code,
            header,
            body,
            opaque=self._opaque,
            oneway=oneway,
            credentials=self._credentials,
        )
        self.used_at = time.monotonic()
        self._write(frame)
        if not oneway:
            self._wanted.add(self._opaque)
        return self._opaque

    def receive(self, opaque: int, *, timeout_s: float) -> RemotingCommand:
        """Return the answer to a request that was sent. RequestTimeoutError: give it up."""
        deadline = time.monotonic() + timeout_s
        while opaque not in self._answers:
            self._take_in(deadline, timeout_s)
        self._wanted.discard(opaque)
        self.used_at = time.monotonic()
        return self._answers.pop(opaque)

    def forget(self, opaque: int) -> None:
        """Pass over the answer to a request when it comes."""
        self._wanted.discard(opaque)
        self._answers.pop(opaque, None)

    def fileno(self) -> int:
        """Return the socket's number, for `select`; below 0 once it is closed."""
        return self._socket.fileno()

    @property
    def holds_input(self) -> bool:
        """Whether TLS has bytes that `select` no longer sees."""
        return self._is_tls and cast("ssl.SSLSocket", self._socket).pending() > 0

    def hear(self) -> None:
        """Read one frame, of which bytes are there. ClientError: the connection is lost."""
        timeout_s = self._config.request_timeout_s
        self._take_in(time.monotonic() + timeout_s, timeout_s)

    def is_usable(self) -> bool:
        """Return whether a request may be sent: open, not idle for too long, not left."""
        idle_s = time.monotonic() - self.used_at
        if self._socket.fileno() < 0 or idle_s > self._config.idle_s_max:
            return False
        return idle_s < _PEEK_AFTER_S or not self._was_left()

    def close(self) -> None:
        """Close the socket. Closing twice does no harm."""
        self._socket.close()

    def _take_in(self, deadline: float, timeout_s: float) -> None:
        command = self._read_frame(deadline, timeout_s)
        if not command.is_response:
            answer = self._on_request(self.address, command)
            if answer is not None and not command.is_oneway:
                self._write(encode_frame(answer))
        elif command.opaque in self._wanted:  # else it came too late: drop it
            self._answers[command.opaque] = command

    def _write(self, frame: bytes) -> None:
        self._socket.settimeout(self._config.request_timeout_s)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:
            self.close()  # interrupted, perhaps inside the frame
            raise

    def _was_left(self) -> bool:
        self._socket.setblocking(False)  # else Python waits for the time-out set last
        if self._is_tls:  # it does not say what it has
            return bool(select.select([self._socket], [], [], 0)[0])
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _connect(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        try:
            made = socket.create_connection(
                (host.strip("[]"), int(port)), timeout=self._config.connect_timeout_s
            )
        except (OSError, UnicodeError) as error:
            raise self._not_had(error) from error
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = client_context(self._config)
        if tls is None:
            return made
        try:
            return tls.wrap_socket(made, server_hostname=host.strip("[]"))
        except OSError as error:
            made.close()
            raise self._not_had(error, is_there=True) from error

    def _read_frame(self, deadline: float, timeout_s: float) -> RemotingCommand:
        try:
            prefix = self._read_exactly(_PREFIX.size, deadline)
            size = check_frame_size(prefix, 0, self._config.frame_bytes_max)
            header_end = check_header_size(prefix, 0, self._config.frame_bytes_max) - _PREFIX.size
            rest_size = size - _PREFIX.size // 2
            if rest_size - header_end >= _LARGE_BODY:
                header = bytes(self._read_exactly(header_end, deadline))
                body = self._read_body(rest_size - header_end, deadline)
                return decode_header(prefix[4], header, body)
            rest = self._read_exactly(rest_size, deadline)
            body = bytes(memoryview(rest)[header_end:])
            return decode_header(prefix[4], bytes(rest[:header_end]), body)
        except TimeoutError:
            # The stream may stand inside a frame: the connection cannot be used again.
            self.close()
            raise RequestTimeoutError(self.address, timeout_s) from None
        except (OSError, ProtocolError) as error:
            raise self._lost(error) from error
        except BaseException:
            self.close()  # interrupted, perhaps inside the frame
            raise

    def _read_exactly(self, size: int, deadline: float) -> bytearray:
        buffer = bytearray(size)
        view, filled = memoryview(buffer), 0
        while filled < size:
            filled += self._read_into(view[filled:], deadline)
        return buffer

    def _read_body(self, size: int, deadline: float) -> bytes:
        """Return the next bytes as they came, without a copy."""
        left = _Left(lambda view: self._read_into(view, deadline), size)
        return io.BufferedReader(left).read(size)

    def _read_into(self, view: memoryview, deadline: float) -> int:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        count = self._socket.recv_into(view)
        if count == 0:
            raise ConnectionResetError(0, "the server closed the connection")
        return count

    def _lost(self, error: Exception) -> ConnectionLostError:
        if hasattr(self, "_socket"):
            self.close()
        return ended(self.address, error, self._config)

    def _not_had(self, error: Exception, *, is_there: bool = False) -> ConnectionLostError:
        waited_s = self._config.connect_timeout_s
        return not_had(self.address, error, self._config, timeout_s=waited_s, is_there=is_there)


class _Left(io.RawIOBase):
    """What is left of a frame, as a file: Python's buffered reader makes `bytes` of it in place."""

    def __init__(self, read_into: Callable[[memoryview], int], size: int) -> None:
        self._read_into, self._size = read_into, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what C hands over
        count = self._read_into(buffer[: self._size]) if self._size else 0
        self._size -= count
        return count
