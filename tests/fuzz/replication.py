"""Fuzz targets of the protocol between members: any bytes are frames, or refused with a reason."""

from __future__ import annotations

import zlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_testing.frames.replication import VECTORS
from imago_wire.errors import ProtocolError
from imago_wire.replication.decoder import FrameDecoder
from imago_wire.replication.encoder import encode
from imago_wire.replication.frames import HEADER, PAYLOAD_BYTES_MAX, FrameType

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

CHUNK: Final = 29


def stream(data: bytes) -> Hashable:
    """A decoder keeps one frame at most, and what it found is written as the same bytes."""
    decoder, written, kinds = FrameDecoder(), b"", list[str]()
    for at in range(0, len(data), CHUNK):
        try:
            found = decoder.feed(data[at : at + CHUNK])
        except ProtocolError as error:
            return (type(error).__name__, str(error)[:16], *kinds)
        assert decoder.buffered_size < HEADER.size + PAYLOAD_BYTES_MAX
        written += b"".join(map(encode, found))
        kinds += [type(frame).__name__ for frame in found]
    assert len(written) + decoder.buffered_size == len(data)
    return tuple(kinds)


def payload(data: bytes) -> Hashable:
    """The first byte chooses the type: the rest is one frame that reads the same, or an error."""
    kind = FrameType(1 + data[0] % len(FrameType)) if data else FrameType.ACK
    unchecked = HEADER.pack(b"IMGR", 1, kind, 0, 1, len(data[1:]), 0)[:-4]
    frame_bytes = unchecked + zlib.crc32(unchecked).to_bytes(4, "big") + data[1:]
    try:
        (frame,) = FrameDecoder().feed(frame_bytes)
    except ProtocolError as error:
        return (kind, str(error)[:24])
    assert encode(frame) == frame_bytes
    return (kind, min(len(data) // 16, 8))


def _seeds() -> dict[str, list[bytes]]:
    frames = [bytes.fromhex(text.replace(" ", "")) for text, _ in VECTORS.values()]
    payloads = [bytes([frame[5] - 1]) + frame[HEADER.size :] for frame in frames]
    return {
        "replication.stream": [*frames, b"".join(frames)],
        "replication.payload": payloads,
    }


TARGETS: Final[Mapping[str, Callable[[bytes], Hashable]]] = MappingProxyType(
    {"replication.stream": stream, "replication.payload": payload}
)
SEEDS: Final[Mapping[str, Sequence[bytes]]] = MappingProxyType(_seeds())
