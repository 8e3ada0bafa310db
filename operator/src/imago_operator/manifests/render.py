"""All objects of a cluster, in the order in which they are made."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from imago_operator.manifests.brokers import stateful_set
from imago_operator.manifests.certmanager import certificates
from imago_operator.manifests.config import config_map, listener_hosts, service_account
from imago_operator.manifests.policies import (
    broker_policy,
    disruption_budget,
    zookeeper_budget,
    zookeeper_policy,
)
from imago_operator.manifests.services import external_services, services
from imago_operator.manifests.zookeeper import managed_zookeeper
from imago_operator.model.listeners import learns_hosts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from imago_operator.manifests.common import Manifest
    from imago_operator.manifests.zookeeper_members import ServerNumbers
    from imago_operator.model.desired import Desired


def render(
    desired: Desired,
    shards: Iterable[int],
    stopped: Collection[int] = (),
    *,
    servers_sleep: bool = False,
    servers: ServerNumbers | None = None,
    learnt: Iterable[tuple[str, str, str]] = (),
    behind: Iterable[str] = (),
) -> tuple[Manifest, ...]:
    """Return every object of a cluster that has these shards; `stopped` ones have no pods.

    `servers_sleep`: those of ZooKeeper have none, either. `servers`: how many it has for now.
    `learnt`: pod, listener and the address that its load balancer has got. `behind`: pods without
    the listeners' ports.
    """
    numbers, seen = tuple(sorted(shards)), (frozenset(learnt), frozenset(behind))
    return _rendered(desired, numbers, frozenset(stopped), servers_sleep, servers, seen)


@lru_cache(maxsize=16)
def _rendered(
    desired: Desired,
    numbers: tuple[int, ...],
    stopped: frozenset[int],
    servers_sleep: bool,
    servers: ServerNumbers | None,
    seen: tuple[frozenset[tuple[str, str, str]], frozenset[str]],
) -> tuple[Manifest, ...]:
    found = [config_map(desired), service_account(desired), *services(desired)]
    learnt, behind = seen
    found += external_services(desired, numbers, behind)
    found += [listener_hosts(desired, learnt)] if learns_hosts(desired.spec) else []
    found += managed_zookeeper(desired, servers, sleeps=servers_sleep)
    found += certificates(desired, numbers)
    found += _policies(desired, numbers)
    for shard in numbers:
        found.append(stateful_set(desired, shard, replicas=0 if shard in stopped else None))
    return tuple(found)


def _policies(desired: Desired, shards: tuple[int, ...]) -> list[Manifest]:
    managed = desired.spec.zookeeper.managed is not None
    found: list[Manifest] = []
    if desired.spec.pod_disruption_budget.enabled:
        found += [disruption_budget(desired, shard) for shard in shards]
        found += [zookeeper_budget(desired)] if managed else []
    if desired.spec.network_policy.enabled:
        found += [broker_policy(desired)]
        found += [zookeeper_policy(desired)] if managed else []
    return found
