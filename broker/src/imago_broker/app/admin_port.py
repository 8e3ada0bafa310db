"""Putting the admin port together: the HTTP application over the broker's parts."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from imago_broker.server.listener import bound_socket

if TYPE_CHECKING:
    import socket

    from aiohttp import web

    from imago_broker.admin.services import AdminServices


class AdminPort:
    """One HTTP port. `bind` takes it, `start` serves, `stop` closes it."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        """The bound port, once bound."""
        self._sock: socket.socket | None = None
        self._runner: web.AppRunner | None = None

    def bind(self) -> None:
        """Take the port without accepting yet; OSError when it cannot be had."""
        self._sock = bound_socket(self.host, self.port)
        self.port = self._sock.getsockname()[1]

    async def start(self, services: AdminServices) -> None:
        """Serve from now on.

        The HTTP library is loaded here, beside the event loop: it takes a third of the time that
        all of a broker's start takes, and clients of the other ports need not wait for it.
        """
        assert self._sock is not None, "the assembly binds first"
        await asyncio.to_thread(importlib.import_module, "imago_broker.admin.routes")
        from aiohttp import web  # noqa: PLC0415  loaded by now

        from imago_broker.admin.routes import build_admin  # noqa: PLC0415  loaded by now

        runner = web.AppRunner(build_admin(services), access_log=None, handle_signals=False)
        await runner.setup()
        self._runner = runner
        await web.SockSite(runner, self._sock).start()
        self._sock = None

    async def stop(self) -> None:
        """Close the port and its connections."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
