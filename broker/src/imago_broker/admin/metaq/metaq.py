"""Routes of MetaQ's management operations: what its tools ask for over JMX, of this broker.

They concern this broker alone, as in MetaQ: its partitions, its configuration, its counters.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.admin.resources.topics import known
from imago_broker.core.metaq.metaq_tree_check import check_tree
from imago_broker.errors import BrokerError
from imago_broker.model import names
from imago_broker.model.metaq_tree import OffsetCopy
from imago_broker.ports import CoordinatorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.topics.topics import TopicConfig

STOP_SECONDS = 0.2
"""The answer leaves before the broker does."""


async def show(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/metaq: what MetaQ's clients and tools see of this broker."""
    config, closed = services.config, services.topics.handles.closed_partitions
    return json_response(
        {
            "brokerId": config.metaq_broker_id,
            "serverIni": config.metaq.server_ini or None,
            "configChecksum": zlib.crc32(services.metaq.config_file()),
            "patterns": list(config.patterns),
            "closed": {
                topic.name: sorted(closed(topic.name))
                for topic in services.topics.all()
                if closed(topic.name)
            },
        }
    )


async def config(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/metaq/config: the configuration in force as a server.ini."""
    return json_response({"text": services.metaq.config_file().decode()})


async def stats(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/metaq/stats?item=: what `stats` answers MetaQ's clients, line by line."""
    item = request.query.get("item", "")
    if services.metaq.stats is None:
        raise AdminError(
            409, "not_served", "This broker does not serve MetaQ.", "Set metaq.enabled = true."
        )
    if item == "config":
        raise bad_request("config is no statistics.", "Ask /admin/v1/metaq/config.")
    text = (await services.metaq.stats(item)).decode()
    return json_response({"item": item, "lines": text.split("\r\n")[1:-2]})


async def reload(services: AdminServices, _: web.Request) -> web.Response:
    """POST /admin/v1/metaq/reload: read the configuration again, and say what changed."""
    try:
        changes = await services.metaq.reload()
    except (OSError, ValueError, BrokerError) as error:
        raise AdminError(
            409,
            "not_reloaded",
            f"{error}.",
            "Correct it and repeat; nothing was changed.",
        ) from error
    return json_response(
        {
            "applied": list(changes.applied),
            "needRestart": list(changes.waiting),
            "topics": sorted(changes.topics),
            "removed": list(changes.removed),
            "configChecksum": zlib.crc32(services.metaq.config_file()),
        }
    )


async def close_partitions(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/metaq/topics/{topic}/close-partitions {"first": 0, "last": 3}.

    Until they are opened or the broker ends, a put or get there is answered 403.
    """
    topic, first, last = await _partitions(services, request)
    services.topics.handles.close_partitions(topic.name, first, last)
    return _closed(services, topic)


async def open_partitions(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/metaq/topics/{topic}/open-partitions: all that are closed."""
    refuse_unknown(await json_body(request), ())
    topic = known(services, request.match_info["topic"])
    services.topics.handles.open_partitions(topic.name)
    return _closed(services, topic)


async def delete_partitions(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/metaq/topics/{topic}/delete-partitions {"first": 0, "last": 3}.

    What closed partitions hold is no longer there for MetaQ's clients; positions go on.
    """
    topic, first, last = await _partitions(services, request)
    closed = services.topics.handles.closed_partitions(topic.name)
    if open_ones := [number for number in range(first, last + 1) if number not in closed]:
        raise AdminError(
            409,
            "not_closed",
            f"Partitions {', '.join(map(str, open_ones[:10]))} of {topic.name} are open.",
            "Close them first, and wait for their consumers.",
        )
    try:
        begins = services.topics.delete_partitions(topic.name, range(first, last + 1))
    except BrokerError as error:
        raise bad_request(f"Topic {topic.name!r:.200}: {error}.", "Ask the master.") from error
    return json_response({"topic": topic.name, "begin": begins})


async def tree(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/metaq/tree: MetaQ's tree in ZooKeeper, and what is wrong with it."""
    try:
        root, nodes = await services.metaq_consumers.metaq_tree()
    except CoordinatorError as error:
        raise AdminError(
            503, "registry", f"{error}.", "Repeat the call when ZooKeeper answers."
        ) from error
    except BrokerError as error:
        raise bad_request(f"{error}.", "Read parts of it with ZooKeeper's own client.") from error
    return json_response(
        {
            "root": root,
            "nodes": [
                {"path": path, "data": node.data, "ephemeral": node.ephemeral}
                for path, node in sorted(nodes.items())
            ],
            "findings": [finding._asdict() for finding in check_tree(nodes, root)],
        }
    )


async def copy_offsets(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/metaq/topics/{topic}/copy-offsets, for partitions that were moved.

    {"source": 0, "target": 1, "first": 0, "last": 3, "targetFirst": 0}: of all groups, in
    ZooKeeper, where the target has none.
    """
    body = await json_body(request)
    refuse_unknown(body, ("source", "target", "first", "last", "targetFirst"))
    copy = OffsetCopy(
        source=_number(body, "source"),
        target=_number(body, "target"),
        first=_number(body, "first"),
        last=_number(body, "last"),
        target_first=_number({"targetFirst": 0, **body}, "targetFirst"),
    )
    if not copy.first <= copy.last < copy.first + names.PARTITIONS_MAX:
        raise bad_request(f"Partitions {copy.first} to {copy.last}.", "Name a range.")
    topic = request.match_info["topic"]
    if problem := names.topic_problem(topic):
        raise bad_request(f"{problem}.", "Correct the topic.")
    try:
        made = await services.metaq_consumers.copy_offsets(topic, copy)
    except CoordinatorError as error:
        raise AdminError(
            503, "registry", f"{error}.", "Repeat the call when ZooKeeper answers."
        ) from error
    return json_response({"topic": topic, "made": made})


async def checkpoint(services: AdminServices, _: web.Request) -> web.Response:
    """POST /admin/v1/metaq/checkpoint: have what was written on the device, and say so there."""
    services.store.request_sync()
    return json_response({"logEnd": services.store.log_end})


async def stop(services: AdminServices, _: web.Request) -> web.Response:
    """POST /admin/v1/metaq/stop: an orderly stop of this broker's process."""
    if services.metaq.stop is None:
        raise AdminError(
            409, "not_a_process", "This broker is not a process of its own.", "Stop its owner."
        )
    asyncio.get_running_loop().call_later(STOP_SECONDS, services.metaq.stop)
    return json_response({"stopping": True})


async def _partitions(
    services: AdminServices, request: web.Request
) -> tuple[TopicConfig, int, int]:
    body = await json_body(request)
    refuse_unknown(body, ("first", "last"))
    topic = known(services, request.match_info["topic"])
    first, last = _number(body, "first"), _number(body, "last")
    if not first <= last < max(1, topic.queues):
        raise bad_request(
            f"Partitions {first} to {last} of {topic.name}, which has {topic.queues}.",
            "Name a range that it has.",
        )
    return topic, first, last


def _number(body: Mapping[str, Any], key: str) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise bad_request(f"{key}: {value!r:.60}, must be a whole number.", "Correct it.")
    return value


def _closed(services: AdminServices, topic: TopicConfig) -> web.Response:
    closed = services.topics.handles.closed_partitions(topic.name)
    return json_response({"topic": topic.name, "closed": sorted(closed)})
