"""Opening a topic's queues on other shards, over the admin interfaces of their masters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import orjson

from imago_broker.model import names
from imago_broker.model.registry.cluster import shard_name
from imago_broker.model.topics.sealing import unsealed
from imago_broker.shard_work.calls import TIMEOUT, call, refusal_of
from imago_broker.shard_work.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.shard_work.services import ShardServices


async def open_on(
    services: ShardServices, shard: int, config: TopicConfig, headers: Mapping[str, str]
) -> None:
    """Have a topic take messages on another shard; returns once its clients can find it there.

    AdminError: whether it does is unknown. To ask again changes nothing.
    """
    master = services.coordinator.view().master(shard)
    if master is None:
        raise AdminError(
            503, "no_master", f"{shard_name(shard)} has no master to ask.", "Repeat the call."
        )
    if not master.admin:
        raise AdminError(
            503,
            "no_master",
            f"{shard_name(shard)}: its master has no admin interface to be asked through.",
            "Set admin.enabled = true there.",
        )
    named = quote(config.name, safe="")
    path = f"/admin/v1/topics/{named}/open"
    told = {"topic": unsealed(config).to_json(), "groups": _groups(services, config.name)}
    body = orjson.dumps(told)
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            call(session, services, master, "POST", path, headers=headers, body=body) as answer,
        ):
            if answer.status >= 300:
                said = await refusal_of(answer)
                raise AdminError(
                    said.status, said.code, f"{shard_name(shard)}: {said.message}", said.cure
                )
    except (aiohttp.ClientError, TimeoutError) as error:
        raise AdminError(
            502,
            "shard_failed",
            f"{shard_name(shard)}: {type(error).__name__} at {master.host}:{master.admin}.",
            "Repeat the call.",
        ) from error


def _groups(services: ShardServices, topic: str) -> dict[str, Any]:
    groups = set(services.offsets.of_topic(topic))
    if topic.startswith(names.RETRY_PREFIX):  # its dead letters others read
        groups.add(topic.removeprefix(names.RETRY_PREFIX))
    configs = (services.groups.get(group) for group in sorted(groups))
    return {config.name: config.to_json() for config in configs if config is not None}
