"""Bytes to commands, at any chunking: the sans-IO decoder for clients and tests.

The broker's read path uses :func:`imago_wire.hot.scan_text`, which gives the same commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.text.line import Pending, parse_line

if TYPE_CHECKING:
    from imago_wire.crc import Buffer
    from imago_wire.text.commands import Command


class Decoder:
    """Bytes in, commands out. Touches no socket, no file and no clock.

    After an error the decoder stays broken: what follows a bad line cannot be told apart.
    """

    def __init__(self, *, line_bytes_max: int, body_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._body_bytes_max = body_bytes_max
        self._buffer = bytearray()
        self._searched = 0  # no CR LF starts before this place
        self._pending: Pending | None = None
        self._error: ProtocolError | None = None

    def feed(self, data: Buffer) -> None:
        """Take what arrived."""
        self._buffer += data

    @property
    def buffered_size(self) -> int:
        """Bytes fed that have not become a command."""
        return len(self._buffer)

    def next_command(self) -> Command | None:
        """Return the next whole command, or None until more bytes are fed.

        ProtocolError: the peer broke the protocol. LimitExceededError: a line or a body is longer
        than allowed; raised as soon as that is known, before the rest is buffered.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._next_command()
        except ProtocolError as error:
            self._error = error
            raise

    def _next_command(self) -> Command | None:
        pending = self._pending
        if pending is None:
            line = self._next_line()
            if line is None:
                return None
            parsed = parse_line(line)
            if not isinstance(parsed, Pending):
                return parsed
            if parsed.size > self._body_bytes_max:
                raise LimitExceededError("body", size=parsed.size, size_max=self._body_bytes_max)
            self._pending = pending = parsed
        if len(self._buffer) < pending.size:
            return None
        self._pending = None
        return pending.finish(self._take(pending.size))

    def _next_line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n", self._searched, self._line_bytes_max + 2)
        if end >= 0:
            line = self._take(end)
            del self._buffer[:2]
            self._searched = 0
            return line
        if len(self._buffer) >= self._line_bytes_max + 2:
            raise LimitExceededError("line", size=len(self._buffer), size_max=self._line_bytes_max)
        self._searched = max(0, len(self._buffer) - 1)
        return None

    def _take(self, size: int) -> bytes:
        with memoryview(self._buffer) as view:
            taken = bytes(view[:size])
        del self._buffer[:size]
        return taken
