"""Lines of standard input for an event loop, which goes on while nobody writes any."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_Chunks: TypeAlias = "asyncio.Queue[bytes | OSError]"
_CHUNK: Final = 1 << 16
_CHUNKS_MAX: Final = 4
"""What is read ahead of the consumer of the lines."""


async def lines() -> AsyncIterator[bytes]:
    """Yield the lines of standard input as they come, without their ends."""
    chunks: _Chunks = asyncio.Queue(_CHUNKS_MAX)
    arguments = (_source(), chunks, asyncio.get_running_loop())
    # A thread that is in the middle of reading cannot be stopped: it must not be waited for.
    threading.Thread(target=_read, args=arguments, name="stdin", daemon=True).start()
    rest, chunk = b"", b"\n"
    while chunk:
        found = await chunks.get()
        if isinstance(found, OSError):
            raise found
        chunk = found
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")
    if rest:
        yield rest.rstrip(b"\r")


def _read(take: Callable[[], bytes], chunks: _Chunks, loop: asyncio.AbstractEventLoop) -> None:
    """Put what comes, at the end nothing or the error, until nobody takes any more."""
    chunk: bytes | OSError = b"\n"
    while isinstance(chunk, bytes) and chunk:
        try:
            chunk = take()
        except OSError as error:
            chunk = error
        putting = chunks.put(chunk)
        try:
            asyncio.run_coroutine_threadsafe(putting, loop).result()
        except (RuntimeError, CancelledError):
            putting.close()
            return


def _source() -> Callable[[], bytes]:
    """Return how to read a part of it; without a buffer that a thread would hold for ever."""
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:
        text = sys.stdin  # no file; it is closed where nobody holds it
        return lambda: text.buffer.read(_CHUNK)
    return lambda: os.read(descriptor, _CHUNK)
