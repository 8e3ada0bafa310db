"""Header blocks of a server's answers: a handful, made once and never shortened by a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_wire.grpc.frames import END_HEADERS, END_STREAM, HEAD_BYTES, Http2Frame, frame

if TYPE_CHECKING:
    from collections.abc import Sequence

_STATUS_200: Final = b"\x88"
_LITERAL: Final = b"\x00"
_TEXT_MAX: Final = 100
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {ord("%")}


def _field(name: bytes, value: bytes) -> bytes:
    assert len(name) < 127, "one byte says how long it is"
    assert len(value) < 127 * 4, "two bytes say how long it is"
    return _LITERAL + bytes((len(name),)) + name + _size(len(value)) + value


def _size(size: int) -> bytes:
    """Return a length as HPACK writes it in seven bits, and in bytes after them."""
    if size < 127:
        return bytes((size,))
    rest, out = size - 127, bytearray(b"\x7f")
    while rest >= 128:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_HEADERS: Final = _STATUS_200 + _field(b"content-type", b"application/grpc")
_TRAILERS_OK: Final = _field(b"grpc-status", b"0")


def response_headers(stream: int) -> bytes:
    """Return the frame with which every answer begins."""
    return frame(Http2Frame.HEADERS, END_HEADERS, stream, _HEADERS)


def trailers(stream: int, status: int = 0, text: str = "", *, only: bool = False) -> bytes:
    """Return the frame with which every answer ends. `only`: nothing was sent before it."""
    block = _HEADERS if only else b""
    if not status:
        block += _TRAILERS_OK
    else:
        block += _field(b"grpc-status", str(status).encode())
        block += _field(b"grpc-message", _percent(text))
    return frame(Http2Frame.HEADERS, END_HEADERS | END_STREAM, stream, block)


def _percent(text: str) -> bytes:
    """Return a text as `grpc-message` has it."""
    encoded = text[:_TEXT_MAX].encode()
    return b"".join(
        bytes((byte,)) if byte in _PLAIN else f"%{byte:02X}".encode() for byte in encoded
    )[:400]


def framed(messages: Sequence[bytes]) -> bytes:
    """Return messages of an answer, each behind its head."""
    return b"".join(
        part for message in messages for part in (b"\0" + len(message).to_bytes(4, "big"), message)
    )


AROUND_BYTES: Final = len(response_headers(0)) + HEAD_BYTES + len(trailers(0))
"""Of an answer in one frame: all but what windows are for."""
_MESSAGE_AT: Final = len(response_headers(0)) + HEAD_BYTES + 5


def held(answer: bytes) -> bytes:
    """Return the only message of an answer that was made with its frames."""
    return answer[_MESSAGE_AT : len(answer) - len(trailers(0))]
