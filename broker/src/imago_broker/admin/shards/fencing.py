"""Routes that fence a member and lift that, and all that one answers meanwhile."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import shutil
from typing import TYPE_CHECKING, Any

from aiohttp import web

from imago_broker.admin.access import check_operator
from imago_broker.admin.calls.guard import (
    audited,
    boolean,
    errors_as_json,
    json_body,
    json_response,
    no_foreign_pages,
    text_of,
)
from imago_broker.admin.errors import AdminError, refuse_unknown
from imago_broker.admin.shards.leadership import (
    expected,
    found_risks,
    registered,
    unavailable,
    who,
)
from imago_broker.core.restart import others_in_sync
from imago_broker.model.registry.cluster import shard_name
from imago_broker.ports import CoordinatorConflictError, CoordinatorError
from imago_log.errors import LogIOError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.admin.services import AdminServices, FenceControl
    from imago_broker.config import BrokerConfig

WHY_CHARS_MAX = 500
PATH = "/admin/v1/fence"
STOP_SECONDS = 0.2
"""The answer leaves before the broker does."""


async def fence(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/fence {"why": text, "anyway": true}: keep the log, serve nobody.

    The broker ends in order, and begins again as one that answers this port alone.
    """
    body = await expected(services, request, ("why", "anyway"))
    stop, anyway = services.metaq.stop, boolean(body, "anyway")
    risks = list(found_risks(services).risks)
    if stop is None:
        raise AdminError(
            409, "not_a_process", "This broker is not a process of its own.", "Stop its owner."
        )
    if anyway or not risks:
        risks += await _noted(services, anyway=anyway)
    if risks and not anyway:
        raise AdminError(
            409,
            "not_fenced",
            f"The shard would do worse without this member: {', '.join(risks)}.",
            'Wait until the others are in sync, or send `"anyway": true`: no message is lost, and'
            " clients may be refused until the fence is lifted.",
        )
    try:
        services.fence.set(text_of(body, "why")[:WHY_CHARS_MAX] or "somebody has asked for it")
    except LogIOError:
        await services.marks.unfence_member(services.config.broker.shard, services.uuid)
        raise
    asyncio.get_running_loop().call_later(STOP_SECONDS, stop)
    return json_response({"fenced": True, "risks": risks} | who(services))


async def _noted(services: AdminServices, *, anyway: bool) -> list[str]:
    """Have whoever fences another member know of this one; return why it may not be fenced.

    One of two that are fenced at the same moment comes second here: each has seen the other serve.
    """
    others = others_in_sync(services.coordinator.view(), registered(services))
    least = 0 if anyway else services.config.min_in_sync
    place = (services.config.broker.shard, services.uuid)
    try:
        await services.marks.fence_member(*place, others=others, least=least)
    except CoordinatorConflictError as error:
        return [str(error)]
    except CoordinatorError as error:
        if not anyway:
            raise unavailable(error) from error
    return []


async def lift(services: AdminServices, _: web.Request) -> web.Response:
    """DELETE /admin/v1/fence: at a member that serves there is nothing to lift."""
    services.fence.lift()
    return json_response({"fenced": False} | who(services))


def build_held(
    config: BrokerConfig,
    mark: FenceControl,
    uuid: str,
    allowed: Callable[[web.Request], None] = lambda _: None,
) -> web.Application:
    """Return what a member answers that is fenced: who it is and why, and how to end it.

    `allowed` is called of each request whose caller may have it served.
    """

    @web.middleware
    async def authorized(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path.startswith("/admin/"):
            check_operator(config, request)
        allowed(request)
        return await handler(request)

    app = web.Application(middlewares=[audited, errors_as_json, no_foreign_pages, authorized])
    held = HeldMember(config, mark, uuid)
    for method, path, handler in (
        ("GET", "/healthz", held.healthz),
        ("GET", "/livez", held.healthz),
        ("GET", "/readyz", held.readyz),
        ("GET", "/writez", held.readyz),
        ("GET", "/admin/v1/status", held.status),
        ("DELETE", PATH, held.lift),
        ("*", "/{rest:.*}", held.nothing),
    ):
        app.router.add_route(method, path, handler)
    return app


class HeldMember:
    """What a member answers that is fenced."""

    def __init__(self, config: BrokerConfig, mark: FenceControl, uuid: str) -> None:
        self._config, self._mark, self._uuid = config, mark, uuid

    async def healthz(self, _: web.Request) -> web.Response:
        """200: nobody is to start it again."""
        return json_response({"healthy": True, "damaged": []})

    async def readyz(self, _: web.Request) -> web.Response:
        why = self._why()
        body = {"ready": False, "writable": False, "reasons": [why], "warnings": []}
        return json_response(body, status=503)

    async def status(self, _: web.Request) -> web.Response:
        return json_response(self._status())

    async def lift(self, request: web.Request) -> web.Response:
        """DELETE /admin/v1/fence: it goes on as a broker."""
        refuse_unknown(await json_body(request), ("requestId",))
        self._mark.lift()
        return json_response({"fenced": False, "brokerId": self._uuid})

    async def nothing(self, _: web.Request) -> web.Response:
        cure = f"DELETE {PATH}, or `kubectl imago unfence`, has it serve again."
        raise AdminError(503, "fenced", f"{self._why().capitalize()}.", cure)

    def _why(self) -> str:
        said = self._mark.said() or {}
        return f"this member is fenced: {said.get('why', 'no longer')}"

    def _status(self) -> dict[str, Any]:
        room = shutil.disk_usage(self._config.broker.data_dir)
        why = self._why()
        refused = {"accepted": False, "reasons": [why]}
        return {
            "shard": shard_name(self._config.broker.shard),
            "pid": os.getpid(),
            "uuid": self._uuid,
            "role": "fenced",
            "fenced": self._mark.said(),
            "settled": False,
            "waitsFor": f"{why}; until somebody lifts that",
            "version": importlib.metadata.version("imago-mq"),
            "disk": {
                "totalBytes": room.total,
                "usedBytes": room.used,
                "usedShare": room.used / room.total,
                "level": "normal",
                "writable": False,
            },
            "puts": refused,
            "gets": refused,
        }
