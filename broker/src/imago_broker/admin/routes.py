"""The table of routes. One row a method and path; handlers take the services and the request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from imago_broker.admin import login, readers, rights
from imago_broker.admin.access import authorize
from imago_broker.admin.backups import routes as backups
from imago_broker.admin.calls.audit_tail import keep_lines
from imago_broker.admin.calls.guard import audited, errors_as_json, no_foreign_pages
from imago_broker.admin.calls.identity import ENDED, EndedSessions
from imago_broker.admin.calls.repeating import repeatable
from imago_broker.admin.current import audit, clients, history, live, sending, waiting
from imago_broker.admin.dashboard import files
from imago_broker.admin.metaq import (
    metaq,
    metaq_dashboard,
    metaq_http,
    metaq_slave,
    metaq_transactions,
)
from imago_broker.admin.resources import (
    cluster_lists,
    configuration,
    each_shard,
    groups,
    marks,
    messages,
    moves,
    pipelines,
    quotas,
    status,
    topics,
    users,
)
from imago_broker.admin.shards import features, fencing, leadership, opening
from imago_broker.admin.shards.shards import to_master

if TYPE_CHECKING:
    from imago_broker.admin.rights import RouteRight
    from imago_broker.admin.services import AdminServices

Handler = Callable[["AdminServices", web.Request], Awaitable[web.StreamResponse]]

BODY_BYTES_MAX = 1 << 20

ROUTES: tuple[tuple[str, str, Handler, RouteRight], ...] = (
    ("GET", "/", files.page, rights.open_to_all),
    ("GET", "/dashboard/{file}", files.file, rights.open_to_all),
    ("GET", "/healthz", status.healthz, rights.open_to_all),
    ("GET", "/livez", status.healthz, rights.open_to_all),
    ("POST", "/login", login.log_in, rights.open_to_all),
    ("POST", "/logout", login.log_out, rights.open_to_all),
    ("GET", "/admin/v1/session", login.session, rights.any_user),
    ("GET", "/readyz", status.readyz, rights.open_to_all),
    ("GET", "/writez", status.writez, rights.open_to_all),
    ("GET", "/metrics", status.metrics, rights.open_to_all),
    ("GET", "/admin/v1/status", status.status, rights.SHOW_STATE),
    ("GET", "/admin/v1/cluster", status.cluster, rights.SHOW_STATE),
    ("GET", "/admin/v1/cluster/topics", cluster_lists.topics, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/cluster/topics/{topic}", each_shard.topic, rights.SHOW_TOPIC),
    ("GET", "/admin/v1/cluster/groups", cluster_lists.groups, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/cluster/groups/{group}", each_shard.group, rights.SHOW_GROUP),
    ("GET", "/admin/v1/cluster/brokers", each_shard.brokers, rights.SHOW_STATE),
    ("GET", "/admin/v1/cluster/clients", clients.clients, rights.SHOW_CLUSTER),
    ("DELETE", "/admin/v1/cluster/clients/{client}", clients.close, rights.RUN_CLUSTER),
    ("GET", "/admin/v1/cluster/backups", backups.list_all, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/cluster/backups/{name}", backups.show, rights.SHOW_CLUSTER),
    ("POST", "/admin/v1/cluster/backups/{name}", backups.create, rights.RUN_CLUSTER),
    ("DELETE", "/admin/v1/cluster/backups/{name}", backups.delete, rights.RUN_CLUSTER),
    ("GET", "/admin/v1/cluster/scheduled", waiting.scheduled, rights.see_waiting),
    ("GET", "/admin/v1/cluster/halves", waiting.halves, rights.see_waiting),
    ("GET", "/admin/v1/audit", audit.audit, rights.RULE_CLUSTER),
    ("GET", live.PATH, live.live, rights.any_user),
    ("GET", "/admin/v1/history", history.history, rights.see_history),
    ("GET", "/admin/v1/shard", leadership.shard, rights.SHOW_STATE),
    ("GET", "/admin/v1/restart-check", leadership.restart_check, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/restart-done", leadership.restart_done, rights.SHOW_CLUSTER),
    ("POST", "/admin/v1/handover", leadership.handover, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/elect", leadership.elect, rights.RUN_CLUSTER),
    ("POST", fencing.PATH, fencing.fence, rights.RUN_CLUSTER),
    ("DELETE", fencing.PATH, fencing.lift, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/cordon", marks.cordon, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/uncordon", marks.undrain, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/drain", marks.drain, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/undrain", marks.undrain, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/shards/{shard}/cordon", marks.cordon, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/shards/{shard}/uncordon", marks.undrain, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/shards/{shard}/drain", marks.drain, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/shards/{shard}/undrain", marks.undrain, rights.RUN_CLUSTER),
    ("GET", "/admin/v1/shards/{shard}/remaining", marks.remaining, rights.SHOW_CLUSTER),
    ("POST", "/admin/v1/shards/{shard}/drained", marks.mark_drained, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/shards/{shard}/remove", marks.remove, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/operator-epoch", leadership.operator_epoch, rights.RUN_CLUSTER),
    ("GET", features.PATH, features.show, rights.SHOW_STATE),
    ("POST", features.PATH, features.finalize, rights.RUN_CLUSTER),
    ("GET", "/admin/v1/pipelines/{name}", pipelines.show, rights.SHOW_PIPELINE),
    ("POST", "/admin/v1/pipelines/{name}/epoch", pipelines.raise_epoch, rights.ALTER_PIPELINE),
    ("GET", "/admin/v1/topics", topics.list_all, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/topics/{topic}", topics.show, rights.SHOW_TOPIC),
    ("PUT", "/admin/v1/topics/{topic}", topics.put, rights.put_topic),
    ("DELETE", "/admin/v1/topics/{topic}", topics.delete, rights.DELETE_TOPIC),
    ("POST", "/admin/v1/topics/{topic}/open", opening.open_here, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/topics/{topic}/move", moves.move, rights.ALTER_TOPIC),
    ("POST", "/admin/v1/topics/{topic}/seal", moves.seal, rights.ALTER_TOPIC),
    ("POST", "/admin/v1/topics/{topic}/spread", moves.spread, rights.ALTER_TOPIC),
    ("GET", "/admin/v1/groups", groups.list_all, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/groups/{group}", groups.show, rights.SHOW_GROUP),
    ("PUT", "/admin/v1/groups/{group}", groups.put, rights.put_group),
    ("DELETE", "/admin/v1/groups/{group}", groups.delete, rights.DELETE_GROUP),
    ("POST", "/admin/v1/groups/{group}/reset", groups.reset, rights.ALTER_GROUP),
    ("POST", "/admin/v1/groups/{group}/replay", sending.replay, sending.replay_needs),
    ("GET", "/admin/v1/readers", readers.list_all, rights.SHOW_CLUSTER),
    ("POST", "/admin/v1/readers", readers.keep, rights.of_members),
    ("GET", "/admin/v1/users", users.list_all, rights.RULE_CLUSTER),
    ("GET", "/admin/v1/users/{user}", users.show, rights.RULE_CLUSTER),
    ("PUT", "/admin/v1/users/{user}", users.put, rights.RULE_CLUSTER),
    ("DELETE", "/admin/v1/users/{user}", users.delete, rights.RULE_CLUSTER),
    ("POST", "/admin/v1/users/{user}/tokens", users.make_token, rights.RULE_CLUSTER),
    ("DELETE", "/admin/v1/users/{user}/tokens/{number}", users.delete_token, rights.RULE_CLUSTER),
    ("GET", "/admin/v1/quotas", quotas.list_all, rights.RULE_CLUSTER),
    ("PUT", "/admin/v1/quotas/{subject}", quotas.put, rights.RULE_CLUSTER),
    ("DELETE", "/admin/v1/quotas/{subject}", quotas.delete, rights.RULE_CLUSTER),
    ("GET", "/admin/v1/access", users.settings, rights.RULE_CLUSTER),
    ("PUT", "/admin/v1/access", users.put_settings, rights.RULE_CLUSTER),
    ("POST", "/admin/v1/access/exchange", users.exchange, rights.of_members),
    ("GET", "/admin/v1/metaq", metaq.show, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/metaq/tree", metaq.tree, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/metaq/instance", metaq_dashboard.instance, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/metaq/threads", metaq_dashboard.threads, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/metaq/topics", metaq_dashboard.topics, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/metaq/topics/{topic}", metaq_dashboard.topic, rights.SHOW_CLUSTER),
    (
        "POST",
        "/admin/v1/metaq/topics/{topic}/groups/{group}/partitions/{partition}/skip",
        metaq_dashboard.skip,
        rights.reset_progress,
    ),
    ("GET", "/admin/v1/metaq/config", metaq.config, rights.SHOW_CLUSTER),
    ("GET", "/admin/v1/metaq/stats", metaq.stats, rights.SHOW_CLUSTER),
    ("POST", "/admin/v1/metaq/reload", metaq.reload, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/metaq/checkpoint", metaq.checkpoint, rights.RUN_CLUSTER),
    ("POST", "/admin/v1/metaq/stop", metaq.stop, rights.RUN_CLUSTER),
    (
        "POST",
        "/admin/v1/metaq/recover-offsets",
        metaq_slave.recover_offsets,
        rights.RUN_CLUSTER,
    ),
    ("GET", "/admin/v1/metaq/slave", metaq_slave.show, rights.SHOW_CLUSTER),
    ("POST", "/admin/v1/metaq/slave/restart", metaq_slave.restart, rights.RUN_CLUSTER),
    ("GET", "/admin/v1/metaq/transactions", metaq_transactions.list_all, rights.SHOW_CLUSTER),
    (
        "POST",
        "/admin/v1/metaq/transactions/{key}/{decision:commit|rollback|complete|forget}",
        metaq_transactions.decide,
        rights.RUN_CLUSTER,
    ),
    (
        "POST",
        "/admin/v1/metaq/topics/{topic}/close-partitions",
        metaq.close_partitions,
        rights.ALTER_TOPIC,
    ),
    (
        "POST",
        "/admin/v1/metaq/topics/{topic}/open-partitions",
        metaq.open_partitions,
        rights.ALTER_TOPIC,
    ),
    (
        "POST",
        "/admin/v1/metaq/topics/{topic}/copy-offsets",
        metaq.copy_offsets,
        rights.RUN_CLUSTER,
    ),
    (
        "POST",
        "/admin/v1/metaq/topics/{topic}/delete-partitions",
        metaq.delete_partitions,
        rights.ALTER_TOPIC,
    ),
    *(
        (method, "/{function:[pgo].*}", metaq_http.serve, rights.open_to_all)
        for method in ("GET", "POST", "PUT")
    ),
    ("GET", "/admin/v1/messages", messages.find, rights.find_messages),
    ("POST", "/admin/v1/messages", sending.send, sending.send_needs),
    ("GET", "/admin/v1/config", configuration.show, rights.SHOW_CLUSTER),
    ("PATCH", "/admin/v1/config", configuration.patch, rights.RUN_CLUSTER),
)


def rights_by_route() -> dict[tuple[str, str], RouteRight]:
    """Return the rights by method and path as the router names it: without expressions."""
    return {
        (method, re.sub(r"\{(\w+):[^{}]*\}", r"{\1}", path)): right
        for method, path, _, right in ROUTES
    }


def build_admin(
    services: AdminServices, allowed: Callable[[web.Request], None] = lambda _: None
) -> web.Application:
    """Return the admin application; the assembly gives it a port.

    `allowed` is called of each request that is one and that its caller may have served.
    """
    app = web.Application(
        middlewares=[
            audited,
            errors_as_json,
            no_foreign_pages,
            authorize(services, rights_by_route(), allowed),
            users.supers_by_supers,
            repeatable(),
            leadership.operator_fence(services),
            to_master(services),
        ],
        client_max_size=BODY_BYTES_MAX,
    )
    keep_lines(app)
    live.keep_streams(app)
    app[users.SERVICES] = services
    app[login.LOGINS] = login.LoginQueue()
    app[ENDED] = EndedSessions()
    for method, path, handler, _ in ROUTES:
        app.router.add_route(method, path, partial(handler, services))
    return app
