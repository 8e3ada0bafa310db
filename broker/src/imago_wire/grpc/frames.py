"""Frames of HTTP/2 (RFC 9113), as bytes: numbers, and how a server writes its own."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
FRAME_BYTES_MAX: Final = 16_384
"""Of one frame's payload: what every peer takes, and what is taken here."""
WINDOW_MAX: Final = (1 << 31) - 1
WINDOW_DEFAULT: Final = 65_535
TABLE_BYTES: Final = 4096
"""Of the table by which header names and values are shortened."""

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FLAG: Final = 0x20

_HEAD = struct.Struct(">HBBBI")
_SETTING = struct.Struct(">HI")


class Http2Frame(IntEnum):
    """What a frame is."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(IntEnum):
    """What a peer may say of itself."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class H2Error(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


def frame(kind: Http2Frame, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def data_head(stream: int, size: int) -> bytes:
    """Return what stands before a part of an answer's data."""
    return _HEAD.pack(size >> 8, size & 0xFF, Http2Frame.DATA, 0, stream)


def read_head(data: bytes | bytearray, at: int) -> tuple[int, int, int, int]:
    """Return size of the payload, type, flags and stream of the frame at `at`."""
    high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
    return high << 8 | low, kind, flags, stream & WINDOW_MAX


def settings(values: dict[Setting, int]) -> bytes:
    """Return the frame that says what this side takes."""
    payload = b"".join(_SETTING.pack(key, value) for key, value in values.items())
    return frame(Http2Frame.SETTINGS, 0, 0, payload)


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return numbers and values of a peer's settings."""
    return list(_SETTING.iter_unpack(payload))


def window_update(stream: int, size: int) -> bytes:
    """Return the frame that lets a peer send so much more."""
    return frame(Http2Frame.WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def reset(stream: int, why: H2Error) -> bytes:
    """Return the frame that ends one stream."""
    return frame(Http2Frame.RST_STREAM, 0, stream, why.to_bytes(4, "big"))


def goaway(last_stream: int, why: H2Error, text: str = "") -> bytes:
    """Return the frame that ends the connection: streams above `last_stream` were not served."""
    payload = struct.pack(">II", last_stream, why) + text.encode()
    return frame(Http2Frame.GOAWAY, 0, 0, payload)
