"""Routes with what MetaQ's dashboard shows of a broker, and its one action: to skip a backlog."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.admin.paging import page
from imago_broker.admin.resources.topics import known, summary
from imago_broker.admin.shards.shards import no_master
from imago_broker.model import names
from imago_broker.ports import CoordinatorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.topics.topics import TopicConfig


async def instance(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/metaq/instance: the process, its machine and its version."""
    config, process = services.config, psutil.Process()
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return json_response(
        {
            "instance": {
                "startTime": int(process.create_time() * 1000),
                "host": config.broker.host,
                "dataPath": str(config.broker.data_dir),
                "workingDirectory": str(Path.cwd()),
            },
            "version": {
                "version": services.version,
                "brokerId": config.metaq_broker_id,
                "url": f"meta://{config.broker.host}:{config.metaq.port}",
            },
            "runtime": {
                "name": f"{platform.python_implementation()} {platform.python_version()}",
                "processors": os.cpu_count(),
                "arguments": sys.argv[1:],
                "threads": threading.active_count(),
            },
            "system": {
                "memoryBytes": memory.total,
                "memoryAvailableBytes": memory.available,
                "swapBytes": swap.total,
                "swapUsedBytes": swap.used,
                "openFiles": process.num_fds(),
                "residentBytes": process.memory_info().rss,
            },
        }
    )


async def threads(_services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/metaq/threads: what each thread does now."""
    frames = sys._current_frames()  # noqa: SLF001 - its only name
    named = {thread.ident: thread.name for thread in threading.enumerate()}
    return json_response(
        {
            "at": int(time.time() * 1000),
            "items": [
                {
                    "name": named.get(number, str(number)),
                    "stack": [line.rstrip() for line in traceback.format_stack(frame)],
                }
                for number, frame in sorted(frames.items())
            ],
        }
    )


async def topics(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/metaq/topics: what MetaQ's clients see of each topic of this broker."""
    listed = [each.name for each in services.topics.all() if each.dual]
    found = page(sorted(listed), request.query, str)
    return json_response(found | {"items": [await _topic(services, n) for n in found["items"]]})


async def topic(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/metaq/topics/{topic}?group=: one topic; of a group, how far it is and where."""
    config = _dual(services, request)
    found = await _topic(services, config.name)
    group = request.query.get("group")
    if group is None:
        return json_response(found)
    positions, owners = await _of_group(services, config.name, _checked_group(group))
    partitions = [
        _progress(services, config, number, positions.get(number), owners.get(number))
        for number in range(config.queues)
    ]
    group_filter = config.attributes.get(f"metaq.filter.{group}")
    return json_response(found | {"group": group, "filter": group_filter, "partitions": partitions})


async def skip(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/metaq/topics/{topic}/groups/{group}/partitions/{partition}/skip.

    The group goes on at the partition's end. Refused while a consumer owns it, who would not know.
    """
    refuse_unknown(await json_body(request), ())
    config = _dual(services, request)
    group = _checked_group(request.match_info["group"])
    text = request.match_info["partition"]
    number = next((one for one in range(config.queues) if str(one) == text), None)
    if number is None:
        raise bad_request(
            f"Partition {text!r:.60} of {config.name}, which has {config.queues}.",
            "Name one that it has.",
        )
    if not services.metaq_transactions.ready:  # its end is known to the master alone
        raise no_master(services.config.broker.shard)
    _, owners = await _of_group(services, config.name, group)
    if number in owners:
        raise AdminError(
            409,
            "owned",
            f"{owners[number]} consumes partition {number} of {config.name} for {group}.",
            "Stop that consumer first: it would go on where it is, and write so.",
        )
    end = services.store.position_range(config.name, number)[1]
    try:
        await services.metaq_consumers.set_metaq_offset(config.name, group, number, end)
    except CoordinatorError as error:
        raise _unknown(error) from error
    name = f"{services.config.metaq_broker_id}-{number}"
    return json_response({"topic": config.name, "group": group, "partition": name, "position": end})


async def _topic(services: AdminServices, name: str) -> dict[str, Any]:
    found = summary(services, name)
    ranges = [services.store.position_range(name, q) for q in range(found["queues"])]
    size, messages = sum(end - first for first, end in ranges), found["messages"]
    answer = b"" if services.metaq.stats is None else await services.metaq.stats(name)
    lines = [line.partition(" ") for line in answer.decode().split("\r\n")]
    return {
        "topic": name,
        "brokerId": services.config.metaq_broker_id,
        "partitions": found["queues"],
        "messages": messages,
        "bytes": size,
        "averageBytes": size // messages if messages else 0,
        "statistics": {key: value for key, _, value in lines if value},
        "settings": {
            key: found[key] for key in ("acknowledgement", "retentionMs", "attributes", "perm")
        },
    }


def _progress(
    services: AdminServices,
    config: TopicConfig,
    number: int,
    position: int | None,
    owner: str | None,
) -> dict[str, Any]:
    """Return what of a partition a group has consumed, and what it has not."""
    store = services.store
    first, end = store.position_range(config.name, number)
    lowest, highest = store.queue_range(config.name, number)
    at = min(max(first, position or 0), end)
    reached = store.offset_of(config.name, number, at) if first < at < end else lowest
    reached = highest if at >= end else reached
    return {
        "partition": f"{services.config.metaq_broker_id}-{number}",
        "position": position,
        "minPosition": first,
        "maxPosition": end,
        "consumedBytes": at - first,
        "pendingBytes": end - at,
        "consumedMessages": reached - lowest,
        "pendingMessages": highest - reached,
        "owner": owner,
    }


async def _of_group(
    services: AdminServices, topic_name: str, group: str
) -> tuple[Mapping[int, int], Mapping[int, str]]:
    consumers = services.metaq_consumers
    try:
        progress = await consumers.metaq_progress([topic_name], [group])
        owners = await consumers.metaq_owners(topic_name, group)
    except CoordinatorError as error:
        raise _unknown(error) from error
    return progress.get(topic_name, {}).get(group, {}), owners


def _dual(services: AdminServices, request: web.Request) -> TopicConfig:
    config = known(services, request.match_info["topic"])
    if not config.dual:
        raise AdminError(
            409, "not_dual", f"MetaQ's clients do not see {config.name}.", "Ask for another topic."
        )
    return config


def _checked_group(group: str) -> str:
    if problem := names.group_problem(group):
        raise bad_request(f"{problem}.", "Correct the group.")
    return group


def _unknown(error: CoordinatorError) -> AdminError:
    return AdminError(503, "registry", f"{error}.", "Repeat the call when ZooKeeper answers.")
