"""Which groups read which topics: as this shard knows it, and as the masters of others say.

A group that reads a topic on one shard reads its queues on all of them. So a shard is not read out
before a group is through with it that has shown itself on another one alone. Known is who has
committed an offset, or is connected and subscribed, or was while a shard was drained: a shard that
is about to go tells the others whom it knows. Groups that read by broadcasting keep their
progress to themselves: nobody can wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import orjson

from imago_broker.model import names
from imago_broker.model.registry.cluster import shard_name
from imago_broker.shard_work.calls import call, own_headers
from imago_broker.shard_work.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.shard_work.services import ShardServices

Readers = dict[str, set[str]]
"""By topic the groups that read it."""
PATH = "/admin/v1/readers"
TOPICS_AT_ONCE = 1000
PAIRS_AT_ONCE = 1000
"""Of a topic and a group, in one call that tells them to another shard."""
TIMEOUT = aiohttp.ClientTimeout(total=10)


def unknown(services: ShardServices) -> str:
    """Return why this master does not know all who read: it has only just begun to lead."""
    left_ms = services.clients_return_ms()
    if not left_ms:
        return ""
    return (
        f"{shard_name(services.config.broker.shard)} has a new master: for {left_ms // 1000 + 1} s "
        "more, consumers that were connected may come back to it"
    )


def here(services: ShardServices) -> Readers:
    """Return the groups with an offset here, those that are connected here, or were before."""
    offsets = services.offsets
    return together(offsets.by_topic(), offsets.readers.by_topic(), services.subscribed())


def together(*parts: Mapping[str, Iterable[str]]) -> Readers:
    """Return the groups that any of these says read a topic."""
    found: Readers = {}
    for part in parts:
        for topic, groups in part.items():
            found.setdefault(topic, set()).update(set(groups) - names.OWN_GROUPS)
    return found


async def elsewhere(services: ShardServices) -> Readers:
    """Ask the masters of all other shards; AdminError where one does not say.

    Shards that are on record as drained, and have no master any more, were read out with all that
    they knew.
    """
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        return together(*[await _of(session, services, m) for m in _others(services)])


async def tell(services: ShardServices) -> None:
    """Have the masters of all other shards keep whom this one knows; AdminError: one has not."""
    known = here(services)
    pairs = [(topic, group) for topic in sorted(known) for group in sorted(known[topic])]
    parts = [pairs[at : at + PAIRS_AT_ONCE] for at in range(0, len(pairs), PAIRS_AT_ONCE)]
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        for master in _others(services):
            for part in parts:
                await _tell(session, services, master, part)


async def _tell(
    session: aiohttp.ClientSession,
    services: ShardServices,
    master: BrokerRecord,
    part: Iterable[tuple[str, str]],
) -> None:
    items: Readers = {}
    for topic, group in part:
        items.setdefault(topic, set()).add(group)
    body = orjson.dumps({"items": [{"topic": t, "groups": sorted(g)} for t, g in items.items()]})
    try:
        ask = call(session, services, master, "POST", PATH, headers=own_headers(), body=body)
        async with ask as answer:
            if answer.status != 200:
                raise _silent(master.shard, f"it answers {answer.status}", "keep")
    except (aiohttp.ClientError, TimeoutError) as error:
        why = f"{type(error).__name__} at {master.host}"
        raise _silent(master.shard, why, "keep") from error


def _others(services: ShardServices) -> Iterator[BrokerRecord]:
    view, own = services.coordinator.view(), services.config.broker.shard
    for shard in sorted({*view.shards(), *view.known} - {own}):
        master = view.master(shard)
        if master is not None and master.admin:
            yield master
        elif shard not in view.drained:
            why = "it has no master" if master is None else "it has no admin interface"
            raise _silent(shard, why)


async def _of(
    session: aiohttp.ClientSession, services: ShardServices, master: BrokerRecord
) -> Readers:
    found: Readers = {}
    following: str | None = ""
    try:
        while following is not None:
            path = f"{PATH}?limit={TOPICS_AT_ONCE}&next={quote(following, safe='')}"
            ask = call(session, services, master, "GET", path, headers=own_headers())
            async with ask as answer:
                if answer.status != 200:
                    raise _silent(master.shard, await _refusal(answer))
                told: dict[str, Any] = await answer.json()
            for item in told["items"]:
                found[item["topic"]] = set(item["groups"])
            following = told["next"]
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
        raise _silent(master.shard, f"{type(error).__name__} at {master.host}") from error
    return found


async def _refusal(answer: aiohttp.ClientResponse) -> str:
    """Return what a master says instead of who reads."""
    try:
        told = await answer.json()
        if told["error"] == "readers_unknown":
            return str(told["message"]).removesuffix(".")
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        pass
    return f"it answers {answer.status}"


def _silent(shard: int, why: str, what: str = "say") -> AdminError:
    return AdminError(
        502,
        "shard_failed",
        f"{shard_name(shard)} does not {what} which groups read what: {why}.",
        "Have it serve, or drain and remove it first.",
    )
