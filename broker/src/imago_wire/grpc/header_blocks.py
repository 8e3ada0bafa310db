"""Headers of calls, which come in one frame or in several, shortened by a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hpack import Decoder, HPACKError

from imago_wire.grpc.frames import END_HEADERS, END_STREAM, H2Error

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
    ended: bool
    """Whether nothing follows them."""


class HeaderBlocks:
    """Those of one connection, one after the other."""

    def __init__(self, limits: Http2Limits) -> None:
        self.stream = 0
        """The one whose headers are not whole; 0: none are."""
        self._limits = limits
        self._decoder = Decoder(max_header_list_size=limits.header_bytes_max)
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
        return HeaderBlock(stream, self._decoded(bytes(self._data)), self._ended)

    def _decoded(self, block: bytes) -> dict[str, str]:
        """Return header fields; of one that comes twice the last counts."""
        try:
            # Also of calls that are refused: later ones refer to what this has taught.
            found = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            raise BrokenError(H2Error.COMPRESSION_ERROR, "headers cannot be read") from error
        return {
            bytes(name).decode("latin-1"): bytes(value).decode("utf-8", "replace")
            for name, value in found
        }
