"""The table of routes. One row a method and path; handlers take the services and the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from imago_broker.admin import (
    configuration,
    groups,
    leadership,
    marks,
    messages,
    metaq,
    moves,
    opening,
    pipelines,
    status,
    topics,
    whole,
)
from imago_broker.admin.access import authorize
from imago_broker.admin.draining import Drainer
from imago_broker.admin.guard import audited, errors_as_json, no_foreign_pages
from imago_broker.admin.remaining import PROGRESS
from imago_broker.admin.repeating import repeatable
from imago_broker.admin.shards import to_master
from imago_broker.admin.spreading import Spreader

if TYPE_CHECKING:
    from imago_broker.admin.services import AdminServices

Handler = Callable[["AdminServices", web.Request], Awaitable[web.Response]]

BODY_BYTES_MAX = 1 << 20

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", status.dashboard),
    ("GET", "/healthz", status.healthz),
    ("GET", "/readyz", status.readyz),
    ("GET", "/writez", status.writez),
    ("GET", "/metrics", status.metrics),
    ("GET", "/admin/v1/status", status.status),
    ("GET", "/admin/v1/cluster", status.cluster),
    ("GET", "/admin/v1/cluster/topics", whole.topics),
    ("GET", "/admin/v1/cluster/groups", whole.groups),
    ("GET", "/admin/v1/shard", leadership.shard),
    ("GET", "/admin/v1/restart-check", leadership.restart_check),
    ("GET", "/admin/v1/restart-done", leadership.restart_done),
    ("POST", "/admin/v1/handover", leadership.handover),
    ("POST", "/admin/v1/elect", leadership.elect),
    ("POST", "/admin/v1/cordon", marks.cordon),
    ("POST", "/admin/v1/uncordon", marks.undrain),
    ("POST", "/admin/v1/drain", marks.drain),
    ("POST", "/admin/v1/undrain", marks.undrain),
    ("POST", "/admin/v1/shards/{shard}/cordon", marks.cordon),
    ("POST", "/admin/v1/shards/{shard}/uncordon", marks.undrain),
    ("POST", "/admin/v1/shards/{shard}/drain", marks.drain),
    ("POST", "/admin/v1/shards/{shard}/undrain", marks.undrain),
    ("GET", "/admin/v1/shards/{shard}/remaining", marks.remaining),
    ("POST", "/admin/v1/shards/{shard}/drained", marks.mark_drained),
    ("POST", "/admin/v1/shards/{shard}/remove", marks.remove),
    ("POST", "/admin/v1/operator-epoch", leadership.operator_epoch),
    ("GET", "/admin/v1/pipelines/{name}", pipelines.show),
    ("POST", "/admin/v1/pipelines/{name}/epoch", pipelines.raise_epoch),
    ("GET", "/admin/v1/topics", topics.list_all),
    ("GET", "/admin/v1/topics/{topic}", topics.show),
    ("PUT", "/admin/v1/topics/{topic}", topics.put),
    ("DELETE", "/admin/v1/topics/{topic}", topics.delete),
    ("POST", "/admin/v1/topics/{topic}/open", opening.open_here),
    ("POST", "/admin/v1/topics/{topic}/move", moves.move),
    ("POST", "/admin/v1/topics/{topic}/seal", moves.seal),
    ("POST", "/admin/v1/topics/{topic}/spread", moves.spread),
    ("GET", "/admin/v1/groups", groups.list_all),
    ("GET", "/admin/v1/groups/{group}", groups.show),
    ("PUT", "/admin/v1/groups/{group}", groups.put),
    ("DELETE", "/admin/v1/groups/{group}", groups.delete),
    ("POST", "/admin/v1/groups/{group}/reset", groups.reset),
    ("GET", "/admin/v1/metaq", metaq.show),
    ("GET", "/admin/v1/metaq/config", metaq.config),
    ("GET", "/admin/v1/metaq/stats", metaq.stats),
    ("GET", "/admin/v1/metaq/tree", metaq.tree),
    ("POST", "/admin/v1/metaq/reload", metaq.reload),
    ("POST", "/admin/v1/metaq/checkpoint", metaq.checkpoint),
    ("POST", "/admin/v1/metaq/stop", metaq.stop),
    ("POST", "/admin/v1/metaq/topics/{topic}/close-partitions", metaq.close_partitions),
    ("POST", "/admin/v1/metaq/topics/{topic}/open-partitions", metaq.open_partitions),
    ("POST", "/admin/v1/metaq/topics/{topic}/delete-partitions", metaq.delete_partitions),
    ("GET", "/admin/v1/messages", messages.find),
    ("GET", "/admin/v1/config", configuration.show),
    ("PATCH", "/admin/v1/config", configuration.patch),
)


def build_admin(services: AdminServices) -> web.Application:
    """Return the admin application; the assembly gives it a port."""
    app = web.Application(
        middlewares=[
            audited,
            errors_as_json,
            no_foreign_pages,
            authorize(services),
            repeatable(),
            leadership.operator_fence(services),
            to_master(services),
        ],
        client_max_size=BODY_BYTES_MAX,
    )
    for method, path, handler in ROUTES:
        app.router.add_route(method, path, partial(handler, services))
    _keep_at_work(app, Drainer(services), Spreader(services))
    return app


def _keep_at_work(app: web.Application, drainer: Drainer, spreader: Spreader) -> None:
    """Have topics leave, and spread, for as long as the application runs."""

    async def start(_: web.Application) -> None:
        drainer.start()
        spreader.start()

    async def stop(_: web.Application) -> None:
        await spreader.stop()
        await drainer.stop()

    app[marks.DRAINER] = drainer
    app[PROGRESS] = drainer.progress
    app.on_startup.append(start)
    app.on_cleanup.append(stop)
