"""Routes of the broker itself: health, metrics, status, the cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import psutil
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from imago_broker.admin import views
from imago_broker.admin.calls.guard import json_response
from imago_broker.admin.shards.shards import known_to_masters
from imago_broker.config.sections.relations import is_open
from imago_broker.model.registry.cluster import RegistryConnection, shard_name

if TYPE_CHECKING:
    from imago_broker.admin.services import AdminServices

_process = psutil.Process()


async def healthz(services: AdminServices, _: web.Request) -> web.Response:
    """200 while the process answers; damaged parts of the log, which it goes around, are listed."""
    return json_response(
        {"healthy": True, "damaged": views.damage(services.store.damaged_ranges())}
    )


async def readyz(services: AdminServices, _: web.Request) -> web.Response:
    """200 when clients should be sent here, 503 with the reasons otherwise.

    Damage in the log, and what keeps messages from being taken, are warnings only: everything
    else is served here and perhaps nowhere else.
    """
    reasons, hindrances = services.problems(), services.write_problems()
    damaged = [str(damaged) for damaged in services.store.damaged_ranges()]
    body = {
        "ready": not reasons,
        "writable": not (reasons or hindrances),
        "reasons": reasons,
        "warnings": [*hindrances, *damaged],
    }
    return json_response(body, status=503 if reasons else 200)


async def writez(services: AdminServices, _: web.Request) -> web.Response:
    """200 when messages are taken here, 503 with the reasons otherwise."""
    reasons = [*services.problems(), *services.write_problems()]
    body = {"writable": not reasons, "reasons": reasons}
    return json_response(body, status=503 if reasons else 200)


async def metrics(services: AdminServices, _: web.Request) -> web.Response:
    return web.Response(
        body=generate_latest(services.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )


async def status(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/status: this broker at this moment."""
    return json_response(describe(services))


def describe(services: AdminServices) -> dict[str, Any]:
    store, health, counted = services.store, services.health(), services.counters()
    view, status = services.coordinator.view(), services.control.shard_status()
    state = view.states.get(services.config.broker.shard)
    puts, gets = services.refused()
    return {
        "shard": shard_name(services.config.broker.shard),
        "replica": services.replica(),
        "pid": os.getpid(),
        "uuid": services.uuid,
        "role": str(status.role),
        "settled": status.settled,
        "waitsFor": status.reason,
        "epoch": state.epoch if state else store.epoch_seen,
        "inSync": [member.uuid for member in state.in_sync] if state else [services.uuid],
        "followers": [views.follower(follower) for follower in status.followers],
        "logStart": store.log_start,
        "logEnd": store.log_end,
        "highWatermark": store.high_watermark,
        "durable": store.durable_end,
        "clusterId": view.cluster_id,
        "registry": str(services.coordinator.state),
        "registryRefused": dict(view.refused),
        "version": services.version,
        "compiled": services.not_compiled is not None and not services.not_compiled,
        "notCompiled": list(services.not_compiled or ()),
        "connections": dict(services.connections()),
        "disk": {
            "totalBytes": health.disk_total_bytes,
            "usedBytes": health.disk_used_bytes,
            "usedShare": health.disk_used_ratio,
            "level": health.disk_level.value,
            "writable": health.writable,
        },
        "tier": services.tier(),
        "puts": {"accepted": not puts, "reasons": puts},
        "gets": {"accepted": not gets, "reasons": gets},
        "access": {
            "controlled": services.config.acl.enabled,
            "open": is_open(services.config),
            "denied": services.access.denials.count,
            "audit": services.access.denials.audit,
            "wouldBeDenied": services.access.denials.audited,
            "users": len(services.access.users),
        },
        "damaged": views.damage(store.damaged_ranges()),
        "rssBytes": _process.memory_info().rss,
        "counters": {
            "messagesIn": counted.messages_in,
            "messagesOut": counted.messages_out,
            "bytesIn": counted.bytes_in,
            "bytesOut": counted.bytes_out,
        },
    }


async def cluster(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster: one snapshot of all shards, as the registry has it.

    How far members are behind, what keeps a shard from being drained and what went for want of
    room is known to their masters, and asked of them.
    """
    lags, said = await known_to_masters(services, request)
    body = views.cluster(
        services.coordinator.view(),
        connected=services.coordinator.state is RegistryConnection.CONNECTED,
        lags=lags,
        least=services.config.min_in_sync,
        replicas=services.config.broker.replicas,
        said=said,
    )
    return json_response(body)
