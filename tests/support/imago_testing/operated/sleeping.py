"""What no plan does to a cluster that hibernates, or wakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_operator.model import names
from imago_operator.model.actions import Apply, DeleteClaim, DeletePod, Handover, Hibernate
from imago_operator.model.state import STATEFUL_SET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from imago_operator.model.actions import Action
    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Observed
    from imago_operator.plan import ReconcilePlan


def has_no_registry(observed: Observed, desired: Desired) -> bool:
    """Whether ZooKeeper has no pods, and is to have none: no broker acknowledges anything."""
    servers = observed.child(STATEFUL_SET, names.zookeeper(desired.name))
    brokers = any(pod.shard is not None for pod in observed.pods)
    gone = not brokers and not any(child.replicas for child in observed.sets().values())
    return gone or (servers is not None and servers.replicas == 0)


def asleep(desired: Desired, observed: Observed, plan: ReconcilePlan, _: datetime) -> Iterator[str]:
    """Who hibernates is not woken, and keeps its claims; who wakes finds ZooKeeper there."""
    hibernated = desired.spec.hibernated
    if hibernated and any(isinstance(a, (DeleteClaim, DeletePod, Handover)) for a in plan.actions):
        yield "takes something of a cluster that hibernates"
    for action in plan.actions:
        made = getattr(action, "manifest", {})
        if made.get("kind") == STATEFUL_SET and isinstance(action, (Apply, Hibernate)):
            sized = _stops if not made["spec"]["replicas"] else _wakes
            yield from sized(desired, observed, action, made)


def _stops(
    desired: Desired, observed: Observed, action: Action, made: Mapping[str, Any]
) -> Iterator[str]:
    """A set that has no pods gets none; of another they go by order, ZooKeeper's last."""
    name, number = made["metadata"]["name"], made["metadata"]["labels"].get(names.SHARD_LABEL)
    child = observed.child(STATEFUL_SET, name)
    brokers = [pod.name for pod in observed.pods if pod.shard is not None]
    mine = [pod.name for pod in observed.pods if str(pod.shard) == (number or "None")]
    if child is not None and child.replicas == 0:
        return
    if isinstance(action, Apply) and (child is not None or mine):
        yield f"{name} loses its pods by the way"
    if not desired.spec.hibernated:
        yield f"{name} is stopped, and nobody has ordered it"
    if number is None and brokers:
        yield f"{name} stops while {brokers[0]} is there"


def _wakes(
    desired: Desired, observed: Observed, _: Action, made: Mapping[str, Any]
) -> Iterator[str]:
    """A set gets pods only by order; brokers find ZooKeeper there."""
    name, number = made["metadata"]["name"], made["metadata"]["labels"].get(names.SHARD_LABEL)
    child = observed.child(STATEFUL_SET, name)
    if child is None or child.replicas:
        return
    if desired.spec.hibernated:
        yield f"{name} is woken though it is to sleep"
    if number is not None and _all_down(observed) and not _serves_registry(desired, observed):
        yield f"{name} wakes before ZooKeeper"


def _all_down(observed: Observed) -> bool:
    sets = observed.sets().values()
    return bool(sets) and all(child.replicas == 0 for child in sets)


def _serves_registry(desired: Desired, observed: Observed) -> bool:
    managed = desired.spec.zookeeper.managed
    serving = sum(pod.serving for pod in observed.pods_of(None))
    return managed is None or serving > managed.replicas // 2
