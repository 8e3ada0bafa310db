"""Where an HTTP request's head ends and its body does, before anything reads what they say.

The HTTP library joins what belongs to a head, and raises errors that hold what it was given. So it
gets whole heads of a bounded size and of those methods that there are, and of bodies only what
belongs to them: a peer of whom nothing is known yet makes neither grow.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

HEAD_BYTES_MAX: Final = 16 << 10
"""Of a request's line and its headers. Tokens, cookies and signatures take some hundred bytes."""
CHUNK_LINE_MAX: Final = 20
"""Of the lines around a chunk: its size, without extensions, which nobody uses."""
SIZE_DIGITS_MAX: Final = 15
FRAMING_PART: Final = 4
"""Of a body in chunks the lines around them may be `HEAD_BYTES_MAX`, and this part of it more: who
sends single bytes makes much work of little."""
LENGTH_DIGITS_MAX: Final = 18
METHODS: Final = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))

_END_OF_HEAD: Final = b"\r\n\r\n"
_END_OF_LINE: Final = b"\r\n"
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


class HttpRefusedError(Exception):
    """A request that is not read on."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class _Part(Enum):
    """What comes next of a body in chunks."""

    SIZE = "the line in front of a chunk"
    DATA = "the chunk"
    END = "the end of its line"
    LAST = "the end of the last line"


class HttpFraming:
    """Cuts what comes over one connection into heads and pieces of bodies."""

    __slots__ = ("_body_size", "_buffer", "_chunk", "_framing_size", "_left", "_part", "in_body")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.in_body = False
        """Whether what comes next belongs to the body of the last head."""
        self._left = 0
        """Bytes of the body, or of the chunk, that have not come."""
        self._chunk = False
        """Whether the body comes in chunks."""
        self._part = _Part.SIZE
        self._body_size = self._framing_size = 0

    @property
    def held(self) -> int:
        """Bytes that are kept here."""
        return len(self._buffer)

    def add(self, data: bytes) -> None:
        """Take what has come."""
        self._buffer += data

    def clear(self) -> None:
        """Keep nothing: nobody reads on."""
        self._buffer.clear()

    def head(self) -> bytes:
        """Return the next request's head; empty: it is not whole. HttpRefusedError: it is none."""
        assert not self.in_body, "the last request's body ends first"
        end = self._buffer.find(_END_OF_HEAD, 0, HEAD_BYTES_MAX)
        if end < 0:
            if len(self._buffer) >= HEAD_BYTES_MAX:
                raise HttpRefusedError(
                    431, f"The head of a request has at most {HEAD_BYTES_MAX} bytes."
                )
            self._check_beginning()
            return b""
        self._check_beginning()
        head = self._taken(end + len(_END_OF_HEAD))
        self._begin_body(head)
        return head

    def body(self) -> bytes:
        """Return what has come of the body, as it stands; empty: more has to come."""
        if not self._chunk:
            piece = self._taken(min(self._left, len(self._buffer)))
            self._left -= len(piece)
            self.in_body = self._left > 0
            return piece
        at = 0
        while self.in_body and (step := self._chunk_step(at)):
            at += step
        return self._taken(at)

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _check_beginning(self) -> None:
        """Refuse what does not begin as a request does, before its head is whole."""
        method, space, _ = self._buffer[:16].partition(b" ")
        if space or len(self._buffer) >= 16:
            if bytes(method) not in METHODS:
                raise HttpRefusedError(
                    400, "This is no HTTP request of a method that is served here."
                )
        elif not any(name.startswith(bytes(method)) for name in METHODS):
            raise HttpRefusedError(400, "This is no HTTP request.")

    def _begin_body(self, head: bytes) -> None:
        lengths, encodings = [], []
        for line in head.split(_END_OF_LINE)[1:]:
            name, _, value = line.partition(b":")
            match name.lower():
                case b"content-length":
                    lengths.append(value.strip(b" \t"))
                case b"transfer-encoding":
                    encodings.append(value.strip(b" \t").lower())
                case b"expect" if value.strip(b" \t").lower() != b"100-continue":
                    raise HttpRefusedError(417, "No such expectation is met here.")
                case _:
                    pass
        if len(lengths) + len(encodings) > 1:
            raise HttpRefusedError(400, "How long the body is, is said more than once.")
        if encodings and encodings != [b"chunked"]:
            raise HttpRefusedError(400, "Of transfer encodings there is `chunked` alone.")
        if lengths and not (lengths[0].isdigit() and len(lengths[0]) <= LENGTH_DIGITS_MAX):
            raise HttpRefusedError(400, "The body's length is no number.")
        self._chunk = bool(encodings)
        self._left = int(lengths[0]) if lengths else 0
        self._body_size = self._framing_size = 0
        self._part = _Part.SIZE
        self.in_body = self._chunk or self._left > 0

    def _chunk_step(self, at: int) -> int:
        """Return how much there is of a chunk, or of the lines around it; 0: more has to come."""
        if self._part is _Part.DATA:
            step = min(self._left, len(self._buffer) - at)
            self._left -= step
            self._body_size += step
            if not self._left:
                self._part = _Part.END
            return step
        end = self._buffer.find(_END_OF_LINE, at, at + CHUNK_LINE_MAX)
        if end < 0:
            if len(self._buffer) - at >= CHUNK_LINE_MAX:
                raise HttpRefusedError(400, "A line around a chunk is too long.")
            return 0
        step = end + len(_END_OF_LINE) - at
        self._framing_size += step
        if self._framing_size > HEAD_BYTES_MAX + self._body_size // FRAMING_PART:
            raise HttpRefusedError(400, "The chunks are too small.")
        self._take_line(bytes(self._buffer[at:end]))
        return step

    def _take_line(self, line: bytes) -> None:
        """Take the line in front of a chunk, behind one, or behind the last."""
        if self._part is _Part.SIZE:
            if not 0 < len(line) <= SIZE_DIGITS_MAX or not _HEX.issuperset(line):
                raise HttpRefusedError(400, "The size of a chunk is no number.")
            self._left = int(line, 16)
            self._part = _Part.DATA if self._left else _Part.LAST
        elif line:
            raise HttpRefusedError(400, "A chunk is longer than it says, or has a trailer.")
        else:
            self.in_body = self._part is _Part.END
            self._part = _Part.SIZE
