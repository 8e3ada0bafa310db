"""The mirror's own small HTTP server: `/`, `/status`, `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from imago_mirror.telling import metrics, page, status

if TYPE_CHECKING:
    from imago_mirror.mirror import RunningMirror

REQUEST_BYTES_MAX: Final = 8 << 10
CONNECTIONS_MAX: Final = 32
"""Answered at once; more are closed."""
_REQUEST_S: Final = 5.0


class MirrorWeb:
    """Says how the mirror is, to whoever asks: nothing secret is in it, and nothing changes."""

    def __init__(self, mirror: RunningMirror) -> None:
        self._mirror = mirror
        self._open = 0

    async def start(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(_REQUEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        code, kind, text = HTTPStatus.OK, "application/json", ""
        if method != "GET":
            code, text = HTTPStatus.METHOD_NOT_ALLOWED, '{"error": "MethodNotAllowed"}'
        elif path == "/":
            kind, text = "text/html; charset=utf-8", page(status(self._mirror))
        elif path == "/status":
            text = json.dumps(status(self._mirror))
        elif path == "/metrics":
            kind = "text/plain; version=0.0.4; charset=utf-8"
            text = metrics(status(self._mirror))
        elif path == "/healthz":
            text = '{"status": "ok"}'
        elif path == "/readyz":
            code = HTTPStatus.OK if self._mirror.begun else HTTPStatus.SERVICE_UNAVAILABLE
            text = json.dumps({"ready": self._mirror.begun})
        else:
            code, text = HTTPStatus.NOT_FOUND, '{"error": "NotFound"}'
        body = text.encode()
        return (
            f"HTTP/1.1 {code.value} {code.phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        ).encode() + body
