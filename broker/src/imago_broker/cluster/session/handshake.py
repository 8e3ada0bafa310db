"""Asks a ZooKeeper which session time-out it grants: kazoo keeps that number to itself.

One connect request as ZooKeeper's protocol has it, its answer, and the close of the session it
opened. Both directions are frames of a 4-byte size and big-endian fields.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

_SIZE = struct.Struct(">i")
_CONNECT = struct.Struct(">iqiqi16s?")
"""Protocol version, last transaction seen, time-out in ms, session id, password (size, bytes),
read only."""
_GRANTED = struct.Struct(">ii")
"""Protocol version, time-out in ms; what follows is of no interest here."""
_CLOSE = struct.pack(">iii", 8, 1, -11)
"""A frame of 8 bytes: request number 1, closeSession."""
_ANSWER_BYTES_MAX = 1024


async def granted_session_timeout_ms(
    host: str, port: int, *, wanted_ms: int, context: ssl.SSLContext | None = None
) -> int:
    """Return the session time-out that the server would give to one who wants this one.

    OSError when it cannot be reached or does not answer as a ZooKeeper does.
    """
    name = host if context is not None else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    try:
        request = _CONNECT.pack(0, 0, wanted_ms, 0, 16, bytes(16), False)
        writer.write(_SIZE.pack(len(request)) + request)
        answer = await _frame(reader)
        writer.write(_CLOSE)
        await writer.drain()
        # Until it hangs up: a client that goes first leaves a warning in the server's log.
        await reader.read(_ANSWER_BYTES_MAX)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return int(_GRANTED.unpack_from(answer)[1])


async def _frame(reader: asyncio.StreamReader) -> bytes:
    try:
        size = _SIZE.unpack(await reader.readexactly(_SIZE.size))[0]
        if not _GRANTED.size <= size <= _ANSWER_BYTES_MAX:
            raise ConnectionError(f"an answer of {size} bytes, which no ZooKeeper gives")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("closed without an answer") from error
