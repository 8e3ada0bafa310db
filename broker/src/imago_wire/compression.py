"""Compressed message bodies: RocketMQ's zlib, LZ4 frames and Zstandard, within a limit.

The last two are loaded by the first body that has them.
"""

from __future__ import annotations

import zlib

from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.record_format.layout import (
    SYS_COMPRESSION_LZ4,
    SYS_COMPRESSION_MASK,
    SYS_COMPRESSION_ZLIB,
    SYS_COMPRESSION_ZSTD,
)

ZLIB_LEVEL = 5
"""RocketMQ's own default."""

_ZSTD_WINDOW_MAX = 1 << 23


def compress(body: bytes, kind: int = SYS_COMPRESSION_ZLIB) -> bytes:
    """Return the body compressed; ``kind`` is one of the SYS_COMPRESSION bits."""
    match kind:
        case 0 | 0x300:
            return zlib.compress(body, ZLIB_LEVEL)
        case 0x100:
            import lz4.frame

            return bytes(lz4.frame.compress(body))
        case 0x200:
            import zstandard

            return zstandard.ZstdCompressor().compress(body)
        case _:
            raise ProtocolError(f"compression type {kind >> 8}")


def inflate(body: bytes, sys_flag: int, size_max: int) -> bytes:
    """Return the inflated body. Stops at ``size_max`` bytes with LimitExceededError.

    The type bits of ``sys_flag`` say how; no bits mean zlib, as all 4.x clients send it.
    ProtocolError: the bytes are damaged or cut. What follows the compressed stream is ignored, as
    Java does.
    """
    kind = sys_flag & SYS_COMPRESSION_MASK
    try:
        if kind in (0, SYS_COMPRESSION_ZLIB):
            inflated, whole = _inflate_zlib(body, size_max)
        elif kind == SYS_COMPRESSION_LZ4:
            inflated, whole = _inflate_lz4(body, size_max)
        elif kind == SYS_COMPRESSION_ZSTD:
            inflated, whole = _inflate_zstd(body, size_max)
        else:
            raise ProtocolError(f"compression type {kind >> 8}")
    except (zlib.error, RuntimeError, EOFError) as error:
        raise ProtocolError(f"compressed body is damaged: {error}") from error
    if len(inflated) > size_max:
        raise LimitExceededError("inflated body", size=len(inflated), size_max=size_max)
    if not whole:
        raise ProtocolError("compressed body is cut")
    return inflated


def _inflate_zlib(body: bytes, size_max: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    return inflater.decompress(body, size_max + 1), inflater.eof


def _inflate_lz4(body: bytes, size_max: int) -> tuple[bytes, bool]:
    import lz4.frame

    inflater = lz4.frame.LZ4FrameDecompressor()
    return bytes(inflater.decompress(body, max_length=size_max + 1)), bool(inflater.eof)


def _inflate_zstd(body: bytes, size_max: int) -> tuple[bytes, bool]:
    import zstandard

    try:
        return _zstd_within(body, size_max), True
    except zstandard.ZstdError as error:
        raise ProtocolError(f"compressed body is damaged: {error}") from error


def _zstd_within(body: bytes, size_max: int) -> bytes:
    import zstandard

    declared = zstandard.frame_content_size(body)  # -1: unknown, as streams write it
    if declared > size_max:
        raise LimitExceededError("inflated body", size=declared, size_max=size_max)
    try:
        return zstandard.ZstdDecompressor().decompress(body, max(size_max, 1))
    except zstandard.ZstdError:
        # One error for "too big" and for "damaged": read once more, within the limit, to tell.
        reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).stream_reader(body)
        size = 0
        while size <= size_max and (piece := reader.read(1 << 16)):
            size += len(piece)
        if size > size_max:
            raise LimitExceededError("inflated body", size=size, size_max=size_max) from None
        raise
