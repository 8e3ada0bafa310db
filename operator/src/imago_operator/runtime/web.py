"""The operator's own HTTP: whether it lives, whether it works, figures."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from prometheus_client import CollectorRegistry

SHUTDOWN_S: Final = 1.0


@asynccontextmanager
async def serving(
    host: str,
    port: int,
    registry: CollectorRegistry,
    *,
    ill: Callable[[], list[str]],
    unready: Callable[[], list[str]],
) -> AsyncIterator[int]:
    """Serve /healthz, /readyz and /metrics; yields the port. OSError: it is taken.

    `ill` and `unready`: reasons; none means well.
    """

    async def healthz(_: web.Request) -> web.Response:
        return _answer("healthy", ill())

    async def readyz(_: web.Request) -> web.Response:
        return _answer("ready", unready())

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _answer(what: str, reasons: list[str]) -> web.Response:
    body = json.dumps({what: not reasons, "reasons": reasons})
    status = 503 if reasons else 200
    return web.Response(text=body, status=status, content_type="application/json")
