"""Putting the admin port together: the HTTP application over the broker's parts."""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING

from imago_broker.app.ports.open_files import ADMIN_PLACES
from imago_broker.core.budget import InputBudget
from imago_broker.server.http_session import (
    HttpSession,
    PeersMistakes,
    note_allowed,
    note_answer,
)
from imago_broker.server.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.config.sections.sections import LimitsSection
    from imago_broker.core.budget import OutputBudget
    from imago_broker.server.connection_places import Places
    from imago_broker.server.listener import ListenerLimits
    from imago_broker.server.tls.handshake_queue import HandshakeQueue
    from imago_broker.server.tls.tls_certificates import Certificates
    from imago_broker.server.tls.tls_entry import TlsDoor

KEEPALIVE_SECONDS = 75.0
"""How long a connection may wait for its next request. The library's own limit is an hour."""
DRAIN_SECONDS = 2.0
INPUT_BYTES_MAX = 8 << 20
"""Of unfinished requests of all callers: most are unknown so far. Clients of the other ports have
another budget."""

_http_log = logging.getLogger("imago_broker.admin.http")
_http_log.addFilter(PeersMistakes())


class AdminPort:
    """One HTTP port. `bind` takes it, `start` serves, `stop` closes it."""

    def __init__(
        self,
        host: str,
        port: int,
        limits: ListenerLimits,
        *,
        bounds: LimitsSection,
        budget: OutputBudget,
        places: Places,
    ) -> None:
        """`bounds` says how long a request may stay without an answer, and an answer unread."""
        # It gets the sessions when the HTTP library is loaded.
        self._listener = Listener(
            host, port, limits=limits, places=places, places_kept=ADMIN_PLACES
        )
        self._bounds = bounds
        self._budget = budget
        self._input_budget = InputBudget(INPUT_BYTES_MAX)
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The bound port, once bound."""
        return self._listener.port

    @property
    def door(self) -> TlsDoor | None:
        """What connections with TLS come through."""
        return self._listener.door

    def secure(self, certificates: Certificates, queue: HandshakeQueue) -> None:
        """Serve https beside http."""
        self._listener.secure(certificates, queue, plain_too=True, of_admin=True)

    def bind(self) -> None:
        """Take the port without accepting yet; OSError when it cannot be had."""
        self._listener.bind()

    async def start(self, services: Callable[[], AdminServices]) -> None:
        """Serve from now on.

        The libraries for routes and metrics are loaded here, beside the event loop: with what the
        work among shards loads they take half of the time that all of a broker's start takes, and
        clients of the other ports need not wait.
        """
        await asyncio.to_thread(importlib.import_module, "imago_broker.admin.routes")
        from imago_broker.admin.routes import build_admin  # noqa: PLC0415  loaded by now

        await self.serve(lambda: build_admin(services(), note_allowed))

    async def serve(self, build: Callable[[], web.Application]) -> None:
        """Serve an application from now on."""
        from aiohttp import web  # noqa: PLC0415  loaded by now, but for a member that is fenced

        application = build()
        application.on_response_prepare.append(note_answer)
        runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEPALIVE_SECONDS,
            logger=_http_log,
            # Before anybody is asked who he is, a kilobyte would become a megabyte.
            auto_decompress=False,
        )
        await runner.setup()
        server = runner.server
        assert server is not None, "set up just now"
        self._runner = runner
        self._listener.serve(
            lambda: HttpSession(
                server(),
                stall_ms=self._bounds.input_stall_seconds * 1000,
                output_stall_ms=self._bounds.output_stall_seconds * 1000,
                budget=self._budget,
                input_budget=self._input_budget,
            )
        )
        await self._listener.start()

    async def stop(self) -> None:
        """Close the port and its connections."""
        if self._runner is not None:
            await self._runner.shutdown()  # streams of events end, which no drain would see
        await self._listener.stop(drain_seconds=DRAIN_SECONDS)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
