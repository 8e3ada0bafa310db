"""Two speakers on one connection: where frames begin, and who may speak between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

_LENGTH_SIZE = 4
_SEND, _FRAME = 1, 0
"""First members of what the scanner of frames returns."""


class FrameBorders:
    """Follows a stream of length-prefixed frames: where one ends and the next begins."""

    __slots__ = ("_left", "_prefix")

    def __init__(self) -> None:
        self._left = 0
        self._prefix = b""

    @property
    def between(self) -> bool:
        """Whether no frame has begun that has not ended."""
        return not (self._left or self._prefix)

    def feed(self, data: bytes) -> None:
        """Follow these bytes."""
        at = 0
        while at < len(data):
            at = self._step(data, at)

    def to_border(self, data: bytes) -> int:
        """Follow the bytes up to the end of the frame that has begun; return how many they are."""
        at = 0
        while not self.between and at < len(data):
            at = self._step(data, at)
        return at

    def _step(self, data: bytes, at: int) -> int:
        if self._left:
            step = min(self._left, len(data) - at)
            self._left -= step
            return at + step
        end = at + _LENGTH_SIZE - len(self._prefix)
        self._prefix += data[at:end]
        if len(self._prefix) == _LENGTH_SIZE:
            self._left = int.from_bytes(self._prefix, "big")
            self._prefix = b""
        return min(end, len(data))


class Mouth:
    """The client's transport for two speakers: the session speaks between the relay's frames."""

    def __init__(self, client: asyncio.Transport) -> None:
        self.borders = FrameBorders()
        self.session_reads = False
        """Whether the session steers the reading again."""
        self._client = client
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def say(self, data: bytes) -> None:
        """Pass on what the new master said; then what the session wanted to say meanwhile."""
        if self._waiting:
            end = self.borders.to_border(data)
            self._client.write(data[:end])
            if not self.borders.between:
                return
            self._flush()
            data = data[end:]
        self.borders.feed(data)
        self._client.write(data)

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            if self.borders.between:
                self._client.write(piece)
            else:
                self._waiting.append(piece)
                self._waiting_bytes += len(piece)

    def get_write_buffer_size(self) -> int:
        return self._client.get_write_buffer_size() + self._waiting_bytes

    def is_closing(self) -> bool:
        return self._client.is_closing()

    def pause_reading(self) -> None:
        if self.session_reads:
            self._client.pause_reading()

    def resume_reading(self) -> None:
        if self.session_reads:
            self._client.resume_reading()

    def close(self) -> None:
        self._client.close()

    def abort(self) -> None:
        self._client.abort()

    def close_gate(self) -> None:
        """The new master speaks no more."""
        if self.borders.between:
            self._flush()
        else:
            self._client.abort()

    def _flush(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for piece in waiting:
            self._client.write(piece)


def frame_of(item: tuple) -> bytes:  # type: ignore[type-arg]
    """Return a scanned request as the bytes that it came in."""
    if item[0] == _SEND:
        raw_header, body = item[14], item[12]
        return b"%b%b%b" % ((len(raw_header) + len(body)).to_bytes(4, "big"), raw_header, body)
    # What is no frame ends the connection wherever it is read: so does an empty one.
    return encode_frame(item[1]) if item[0] == _FRAME else bytes(4)
