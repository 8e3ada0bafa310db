"""Length-prefixed frames: u32 size, header word (u8 header form, u24 header size), header, body.

The size counts everything after itself. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.remoting.header import HEADER_SIZE_MAX, decode_header, encode_header

if TYPE_CHECKING:
    from imago_wire.remoting.command import RemotingCommand

FRAME_BYTES_MAX: Final = 16 << 20
"""RocketMQ's own limit for a whole frame, its length word included."""

HEADER_BYTES_MAX: Final = 1 << 20
"""What a broker takes as the header of a request: far more than any client sends. A client may
have to read longer ones: the answer to a batch names every message."""

_LENGTH_SIZE: Final = 4
_PREFIX: Final = struct.Struct(">II")


def encode_frame(command: RemotingCommand) -> bytes:
    """Return the command as one frame."""
    header = encode_header(command)
    word = command.serialize << 24 | len(header)
    size = _LENGTH_SIZE + len(header) + len(command.body)
    return b"".join((_PREFIX.pack(size, word), header, command.body))


class FrameDecoder:
    """Bytes in, commands out. Touches no socket, no file and no clock.

    After a ProtocolError the stream is lost: close the connection.
    """

    def __init__(
        self,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        header_bytes_max: int = HEADER_SIZE_MAX,
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self._buffer += data

    def rest(self) -> bytes:
        """Return what is left and forget it: somebody else goes on with the stream."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def next_frame(self) -> RemotingCommand | None:
        """Return the next whole command, or None until more bytes are fed.

        A size over the limit raises LimitExceededError as soon as it can be read, so that a lying
        prefix never makes this side buffer.
        """
        buffer = self._buffer
        if len(buffer) < _LENGTH_SIZE:
            return None
        end = _LENGTH_SIZE + check_frame_size(buffer, 0, self._frame_bytes_max)
        if len(buffer) < _PREFIX.size:
            return None
        header_end = check_header_size(buffer, 0, self._header_bytes_max)
        if len(buffer) < end:
            return None
        serialize = buffer[_LENGTH_SIZE]
        with memoryview(buffer) as view:  # a slice of the buffer itself would be copied twice
            header, body = bytes(view[_PREFIX.size : header_end]), bytes(view[header_end:end])
        del buffer[:end]
        return decode_header(serialize, header, body)


def check_frame_size(buffer: bytes | bytearray | memoryview, at: int, frame_bytes_max: int) -> int:
    """Return the size that the frame at `at` claims, once four bytes are there."""
    size = int.from_bytes(buffer[at : at + _LENGTH_SIZE], "big")
    if size + _LENGTH_SIZE > frame_bytes_max:
        raise LimitExceededError("frame", size=size + _LENGTH_SIZE, size_max=frame_bytes_max)
    if size < _LENGTH_SIZE:
        raise ProtocolError(f"frame of {size} bytes: no room for a header word")
    return size


def check_header_size(
    buffer: bytes | bytearray | memoryview, at: int, header_bytes_max: int
) -> int:
    """Return where the header of the frame at `at` ends, once eight bytes are there."""
    size, word = _PREFIX.unpack_from(buffer, at)
    header_size: int = word & 0xFFFFFF
    if header_size > size - _LENGTH_SIZE:
        raise ProtocolError(f"header of {header_size} bytes in a frame of {size}")
    if header_size > header_bytes_max:
        raise LimitExceededError("header", size=header_size, size_max=header_bytes_max)
    if word >> 24 > 1:
        raise ProtocolError(f"unknown header form {word >> 24}")
    return at + _PREFIX.size + header_size
