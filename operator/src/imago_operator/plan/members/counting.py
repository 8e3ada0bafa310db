"""On how many members acknowledgements count while a shard gets more of them, or fewer.

A put that waits for replicas is refused while fewer members are in sync than it needs. So what it
needs rises only once every shard has all its members in sync, and falls before the first one
leaves. In between each put waits for every member that is in sync, however few these are: whoever
joins has all that was acknowledged, and may lead at once.

What brokers count on now is what their file says, be they there or away: the one that the template
of their StatefulSet names, and while that is made anew their pods. Nothing of it needs a restart; a
broker that was alone opens its port to others meanwhile.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from imago_operator.manifests.config import FILE, config_map_of, config_of
from imago_operator.spec.schema.common import AcknowledgementLevel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from imago_operator.manifests.common import Manifest
    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Observed, Pod

MEMBERS: Final = "broker.replicas"
LEAST: Final = "replication.min_in_sync"
OPEN: Final = "replication.open"
LEVEL: Final = "acknowledgement.level"
REPLICATED: Final = "replicated"


@dataclass(frozen=True, slots=True)
class Counting:
    """What brokers are told of members, in one file of theirs."""

    members: int
    least: int
    level: AcknowledgementLevel


def counted(desired: Desired, observed: Observed) -> Desired:
    """Return the cluster with the number of members that its brokers are to count on for now."""
    said = Counting(desired.replicas, desired.min_in_sync, desired.acknowledgement)
    shards = _members(observed)
    there = {found for name in _files(observed) if (found := _read(_text(observed, name)))}
    if not there:
        return desired
    many = max(shards.values())
    if many == 1 and desired.replicas > 1 and not _may_be_joined(observed):
        return _on_the_way(desired, min(there, key=_order), 1, 1)
    same = {one.members for one in there} == {desired.replicas}
    rises = any(said.least > one.least for one in there)
    if many <= desired.replicas and ((same and not rises) or _is_whole(desired, shards, observed)):
        return desired
    meanwhile = _meanwhile(said, there)
    return _on_the_way(desired, meanwhile, desired.replicas, max(many, said.members))


def _order(counting: Counting) -> tuple[int, int, str]:
    return counting.members, counting.least, counting.level.value


def recounted(desired: Desired, observed: Observed, template: Mapping[str, Any]) -> Manifest | None:
    """Return a file that counts as today's does, and says all else as that of an older template.

    None: that one counts so already, or is not there.
    """
    text = _text(observed, config_of(template))
    if not text:
        return None
    before = dict(_said(tomllib.loads(text)))
    after = before | {name: desired.settings[name] for name in (MEMBERS, LEAST, LEVEL)}
    after.pop(OPEN, None)
    if desired.settings.get(OPEN) and _may_be_joined(observed):
        after[OPEN] = True  # brokers of other versions would not start with it
    return None if after == before else config_map_of(desired, after)


def _said(parts: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a file says as `section.key`."""
    for name, part in parts.items():
        if isinstance(part, dict):
            yield from _said(part, f"{at}{name}.")
        else:
            yield f"{at}{name}", part


def _files(observed: Observed) -> set[str]:
    """Return the files that brokers read when they begin next."""
    sets = observed.sets()
    found = {config_of(one.template) for one in sets.values() if one.replicas}
    return found | {pod.config for pod in _brokers(observed) if pod.shard not in sets}


def _text(observed: Observed, name: str) -> str:
    """Return what is in a file; empty: it is not there."""
    file = observed.child("ConfigMap", name)
    return "" if file is None else str(file.live.get("data", {}).get(FILE, ""))


@lru_cache(maxsize=256)
def _read(text: str) -> Counting | None:
    said: dict[str, Any] = tomllib.loads(text)
    try:
        return Counting(
            said["broker"]["replicas"],
            said["replication"]["min_in_sync"],
            AcknowledgementLevel(said["acknowledgement"]["level"]),
        )
    except (KeyError, ValueError):
        return None  # somebody else's, or none: the operator writes all of them


def _may_be_joined(observed: Observed) -> bool:
    """Whether every broker that answers can open its port to others while it runs."""
    answering = [pod.broker for pod in _brokers(observed) if pod.broker]
    return all(OPEN in broker.config for broker in answering)


def _brokers(observed: Observed) -> list[Pod]:
    return [pod for pod in observed.pods if pod.shard is not None]


def _members(observed: Observed) -> dict[int, int]:
    """Return how many members shards have, those that are still going among them."""
    found = {n: one.replicas for n, one in observed.sets().items() if one.replicas}
    stopped = observed.sets().keys() - found.keys()
    for pod in _brokers(observed):
        if pod.shard is not None and pod.shard not in stopped:
            found[pod.shard] = max(found.get(pod.shard, 0), pod.ordinal + 1)
    return found


def _is_whole(desired: Desired, shards: Collection[int], observed: Observed) -> bool:
    """Whether every shard has all its members, and all of them are in sync."""
    registry = observed.registry
    if registry is None or not registry.connected:
        return False
    for number in shards:
        shard = registry.shards.get(number)
        pods = [p for p in observed.pods_of(number) if p.broker and not p.deleting]
        able = [p for p in pods if p.broker and p.broker.caught_up]
        uuids = {p.broker.uuid for p in able if p.broker}
        if shard is None or len(uuids) < desired.replicas or not uuids <= shard.in_sync:
            return False
    return True


def _meanwhile(said: Counting, there: Collection[Counting]) -> Counting:
    """Return the least that counts on the way: before the first member joins, or after the last."""
    every = {said, *there}
    least = min(one.least for one in every)
    copies = any(one.level.value.startswith(REPLICATED) for one in every)
    level = said.level
    if copies:
        synced = any(one.level is AcknowledgementLevel.REPLICATED_FSYNC for one in every)
        synced = synced or any(one.level is AcknowledgementLevel.LEADER_FSYNC for one in every)
        level = AcknowledgementLevel.REPLICATED_FSYNC if synced else AcknowledgementLevel.REPLICATED
    # Brokers refuse to call one copy of several replicated: here it is the only one that counts.
    alone = copies and least == 1
    return Counting(1 if alone else min(one.members for one in every), least, level)


@lru_cache(maxsize=512)
def _on_the_way(desired: Desired, counting: Counting, members: int, there: int) -> Desired:
    """Return the same value for the same cluster, for what is kept by it."""
    said: dict[str, Any] = {
        MEMBERS: counting.members,
        LEAST: counting.least,
        LEVEL: counting.level.value,
    }
    if counting.members == 1 and there > 1:
        said[OPEN] = True
    return replace(
        desired,
        replicas=members,
        members_there=there,
        changes_members=True,
        acknowledgement=counting.level,
        min_in_sync=counting.least,
        settings={**desired.settings, **said},
        dynamic={**desired.dynamic, **said},
    )
