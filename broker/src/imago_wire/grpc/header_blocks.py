"""Headers of calls, which come in one frame or in several, shortened by a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_wire.errors import ProtocolError
from imago_wire.grpc.frames import END_HEADERS, END_STREAM, FRAME_BYTES_MAX, H2Error
from imago_wire.grpc.headers import WANTED
from imago_wire.grpc.scanning.twins import HeaderDecoder

if TYPE_CHECKING:
    from imago_wire.grpc.limits import Http2Limits


class BrokenError(Exception):
    """The peer does not keep to the protocol: the connection ends."""

    def __init__(self, why: H2Error, text: str) -> None:
        super().__init__(text)
        self.why = why


class HeaderBlock(NamedTuple):
    """Headers that are whole."""

    stream: int
    headers: dict[str, str]
    """Those that a call is asked for: of the rest nothing is kept."""
    ended: bool
    """Whether nothing follows them."""


class HeaderBlocks:
    """Those of one connection, one after the other."""

    def __init__(self, limits: Http2Limits) -> None:
        self.stream = 0
        """The one whose headers are not whole; 0: none are."""
        self._limits = limits
        self._decoder = HeaderDecoder(limits.header_bytes_max, WANTED)
        self._data_bytes_max = min(
            FRAME_BYTES_MAX, limits.stream_window_bytes, limits.message_bytes_max
        )
        self._data = bytearray()
        self._ended = False
        self._frames = 0

    def begin(self, stream: int, flags: int, data: bytes) -> HeaderBlock | None:
        """Take the first frame of a stream's headers; return them when they are whole."""
        self.stream, self._ended, self._frames = stream, bool(flags & END_STREAM), 0
        self._data.clear()
        return self.go_on(flags, data)

    def go_on(self, flags: int, data: bytes) -> HeaderBlock | None:
        """Take one more frame; return the headers when they are whole."""
        if not self.stream:
            raise BrokenError(H2Error.PROTOCOL_ERROR, "nothing is continued")
        self._data += data
        self._frames += 1
        limits = self._limits
        if len(self._data) > limits.header_bytes_max or self._frames > limits.continuations_max:
            raise BrokenError(H2Error.ENHANCE_YOUR_CALM, "headers are too large")
        if not flags & END_HEADERS:
            return None
        stream, self.stream = self.stream, 0
        try:
            # Also of calls that are refused: later ones refer to what this has taught.
            headers = self._decoder.decode(bytes(self._data))
        except ProtocolError as error:
            raise BrokenError(H2Error.COMPRESSION_ERROR, str(error)) from error
        return HeaderBlock(stream, headers, self._ended)

    def whole_call(
        self, data: bytearray, at: int, last: int
    ) -> tuple[int, dict[str, str], bytes, int] | None:
        """Return the call at a place, where it is whole in two frames, and where it ends."""
        if self.stream:
            return None
        try:
            return self._decoder.whole_call(data, at, last, self._data_bytes_max)
        except ProtocolError as error:
            raise BrokenError(H2Error.COMPRESSION_ERROR, str(error)) from error
