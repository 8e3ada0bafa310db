"""What no plan may do, asked once more of the plan that is about to be carried out.

It is written apart from the planner on purpose: it looks only at actions and at what was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.model import names
from imago_operator.model.actions import (
    Apply,
    DeleteChild,
    DeleteClaim,
    DeletePod,
    Elect,
    FenceMember,
    GrowClaim,
    Handover,
    Hibernate,
    MarkDrained,
    RaiseLevel,
    Stop,
)
from imago_operator.model.state import STATEFUL_SET
from imago_operator.spec.cluster.brokers import StorageType
from imago_operator.spec.schema.values import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from imago_operator.model.actions import Action
    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Observed, Pod, Shard


def broken(
    desired: Desired, observed: Observed, actions: Sequence[Action], now: datetime
) -> list[str]:
    """Return every promise that the actions would break."""
    return [
        *_disturbed(desired, observed, actions, now),
        *_restarts(desired, observed, actions, now),
        *_members(desired, observed, actions),
        *_pods(observed, actions),
        *_claims(desired, observed, actions),
        *_shards(observed, actions),
        *_sleep(desired, observed, actions),
        *_fences(desired, observed, actions),
        *_levels(desired, observed, actions),
    ]


def _levels(desired: Desired, observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    """No level is used that a member lacks or a person holds back: that has no way back."""
    registry, held = observed.registry, desired.spec.feature_level
    for action in actions:
        if not isinstance(action, RaiseLevel):
            continue
        shards = registry.shards.values() if registry and registry.connected else ()
        members = [member for shard in shards for member in shard.members]
        if not members or any(member.feature_level < action.level for member in members):
            yield f"level {action.level} is raised that a member may not understand"
        if held is not None and action.level > held:
            yield f"level {action.level} is raised, held at {held}"


def _pod(observed: Observed, name: str) -> Pod | None:
    return next((pod for pod in observed.pods if pod.name == name), None)


def _shard(observed: Observed, number: int) -> Shard | None:
    registry = observed.registry
    return registry.shards.get(number) if registry and registry.connected else None


def _disturbed(
    desired: Desired, observed: Observed, actions: Sequence[Action], now: datetime
) -> Iterator[str]:
    """A member that holds what was acknowledged goes only while all others of its shard do, too.

    Whether pods are ready is not asked: those of a healthy shard may all be unready for a while.
    """
    shards = []
    for pod in _taken(observed, actions):
        others = [p for p in observed.pods_of(pod.shard) if p.name != pod.name]
        if any(other.deleting for other in others):
            yield f"{pod.name} is taken while another member goes"
        others = _needed(desired, pod, others)
        holders = [p for p in others if _holds(observed, p)]
        if _may_hold(observed, pod):
            shards.append(pod.shard)
        elif _is_late(desired, pod, now):
            continue
        if len(holders) + 1 < desired.replicas or len(holders) < len(others):
            yield f"{pod.name} is taken while its shard lacks a member"
    if len(shards) != len(set(shards)):
        yield "two members of one shard"
    whole = {n for n in observed.sets() if _is_whole(desired, observed, n)}
    stopped = {n for n, child in observed.sets().items() if child.replicas == 0}
    touched = (set(observed.sets()) - whole - stopped) | set(shards)
    if shards and len(touched) > desired.spec.update_policy.max_unavailable_shards:
        yield f"{len(touched)} shards at a time"


def _needed(desired: Desired, pod: Pod, others: list[Pod]) -> list[Pod]:
    """Return the members that a shard needs while one goes; of those that leave it needs none."""
    leaves = pod.ordinal >= desired.replicas
    return [one for one in others if not leaves or one.ordinal < desired.replicas]


def _restarts(
    desired: Desired, observed: Observed, actions: Sequence[Action], now: datetime
) -> Iterator[str]:
    """Members that their shards lack anyway are not taken in more shards at a time, either."""
    taken = {pod.shard for pod in _taken(observed, actions)}
    going = [p for p in observed.pods if p.deleting and not _is_late(desired, p, now)]
    going = [pod for pod in going if _comes_back(observed, pod)]
    both = taken | {pod.shard for pod in going if pod.shard is not None}
    if taken and len(both) > desired.spec.update_policy.max_unavailable_shards:
        yield f"restarts in {len(both)} shards at a time"


def _comes_back(observed: Observed, pod: Pod) -> bool:
    """Whether a pod that goes is made anew; those that leave, or whose shard stops, are not."""
    found = None if pod.shard is None else observed.sets().get(pod.shard)
    return found is None or pod.ordinal < (found.replicas or 0)


def _members(desired: Desired, observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    """A shard with too many members loses one at a time, while all that it is to have hold it all.

    Whoever is beyond the number that a StatefulSet is made anew with goes as well.
    """
    for action in actions:
        if not isinstance(action, Apply) or action.manifest["kind"] != STATEFUL_SET:
            continue
        name, replicas = action.manifest["metadata"]["name"], action.manifest["spec"]["replicas"]
        child = observed.child(STATEFUL_SET, name)
        number = action.manifest["metadata"]["labels"].get(names.SHARD_LABEL)
        before = child.replicas or 0 if child else replicas + 1
        if number is None or not 0 < replicas < before:
            continue
        pods = [pod for pod in observed.pods_of(int(number)) if child or not pod.deleting]
        stay = [pod for pod in pods if pod.ordinal < replicas and _holds(observed, pod)]
        goes = [pod for pod in pods if pod.ordinal >= replicas]
        many = [pod for pod in stay if pod.ordinal < desired.replicas]
        if len(goes) > 1 or (goes and len(many) < desired.replicas):
            yield f"{name} loses members that its shard may need"
        if any(_leads(observed, pod) for pod in goes):
            yield f"{name} loses its leader"
        if goes and any(_least(pod) > len(stay) for pod in pods):
            yield f"{name} loses a member that puts wait for"


def _leads(observed: Observed, pod: Pod) -> bool:
    shard = _shard(observed, pod.shard) if pod.shard is not None else None
    return bool(shard and pod.broker and pod.broker.uuid == shard.master)


def _least(pod: Pod) -> int:
    """Return how many members in sync a broker needs for a put, as far as it says so."""
    said = pod.broker.config.get("replication.min_in_sync") if pod.broker else None
    return said if isinstance(said, int) else 0


def _taken(observed: Observed, actions: Sequence[Action]) -> Iterator[Pod]:
    """Yield the members that are taken away: those that run, and do not go with their disk."""
    given_up = {a.name for a in actions if isinstance(a, DeleteClaim)}
    named = [a.name for a in actions if isinstance(a, DeletePod)]
    named += [a.pod for a in actions if isinstance(a, Handover)]
    for name in named:
        pod = _pod(observed, name)
        if pod is None or pod.shard is None or f"data-{name}" in given_up:
            continue
        if pod.broker is not None or pod.ready or pod.waiting is None:
            yield pod


def _holds(observed: Observed, pod: Pod) -> bool:
    """Whether a member has everything that was acknowledged, answers, and stays."""
    shard = _shard(observed, pod.shard) if pod.shard is not None else None
    answers = pod.broker is not None and pod.broker.caught_up and not pod.deleting
    return bool(answers and shard and pod.broker and pod.broker.uuid in shard.in_sync)


def _may_hold(observed: Observed, pod: Pod) -> bool:
    """The same of the pod that goes, where silence is no proof of the contrary."""
    shard = _shard(observed, pod.shard) if pod.shard is not None else None
    if shard is None:
        return pod.broker is not None
    known = {p.broker.uuid for p in observed.pods_of(pod.shard) if p.broker}
    own = {pod.broker.uuid} if pod.broker else shard.in_sync - known
    return bool(shard.in_sync & own)


def _is_whole(desired: Desired, observed: Observed, number: int) -> bool:
    """Whether a shard has the members that it is to have; of others it needs none."""
    pods = [pod for pod in observed.pods_of(number) if pod.ordinal < desired.replicas]
    return len(pods) >= desired.replicas and all(_holds(observed, pod) for pod in pods)


def _is_late(desired: Desired, pod: Pod, now: datetime) -> bool:
    """Whether a pod has not been ready for longer than the policy gives it."""
    if pod.ready or pod.turned is None:
        return False
    patience = desired.spec.update_policy.ready_timeout.seconds
    return (now - pod.turned).total_seconds() >= patience


def _pods(observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    deleted = [action for action in actions if isinstance(action, DeletePod)]
    if len({action.shard for action in deleted}) != len(deleted):
        yield "two pods of one shard"
    for action in deleted:
        pod = _pod(observed, action.name)
        if pod is None or (pod.uid, pod.shard) != (action.uid, action.shard):
            yield f"pod {action.name} is not the one that was seen"


def _claims(desired: Desired, observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    """A claim goes with a drained shard and on record, or on record as lost or as left."""
    listed = set(observed.status.scale_down.claims) if observed.status.scale_down else set()
    lost = {(m.claim, m.uid) for m in observed.status.replaced_members}
    pods = {f"data-{pod.name}" for pod in observed.pods}
    uids = {claim.name: claim.uid for claim in observed.claims}
    for action in actions:
        if isinstance(action, GrowClaim):
            yield from _grown(desired, observed, action)
        if not isinstance(action, DeleteClaim):
            continue
        shard = _shard(observed, action.shard)
        drained = shard is not None and shard.drained
        if uids.get(action.name) != action.uid:
            yield f"claim {action.name} is not the one that was seen"
        elif (
            (drained and action.name in listed)
            or _has_left(desired, observed, action)
            or _is_moved(desired, observed, action)
        ):
            if action.name in pods:
                yield f"claim {action.name} has a pod"
        elif (action.name, action.uid) not in lost or shard is None or not shard.in_sync:
            yield f"claim {action.name} may be needed"


def _is_moved(desired: Desired, observed: Observed, action: DeleteClaim) -> bool:
    """Whether a claim is on record as one that its member exchanges, and nobody makes its pod.

    All other members that the shard is to have hold everything, and one of them leads.
    """
    record, claim = observed.status.moved_member, None
    if record is not None and (record.claim, record.uid) == (action.name, action.uid):
        claim = next(c for c in observed.claims if c.name == action.name)
    if claim is None or claim.shard in observed.sets() or desired.problem is not None:
        return False
    pods = [pod for pod in observed.pods_of(claim.shard) if pod.ordinal < desired.replicas]
    others = [pod for pod in pods if pod.ordinal != claim.ordinal and _holds(observed, pod)]
    enough = len(others) == desired.replicas - 1 >= max(1, *map(_least, others))
    return enough and any(_leads(observed, pod) for pod in others)


def _grown(desired: Desired, observed: Observed, action: GrowClaim) -> Iterator[str]:
    """A claim never asks for less, and by itself for no more than somebody has allowed."""
    size = Quantity(action.size).bytes
    storage = desired.spec.brokers.storage
    most = storage.auto_grow.max.bytes if storage.auto_grow and action.at else 0
    managed = desired.spec.zookeeper.managed
    servers = {c.name for c in observed.server_claims}
    if action.name in servers and managed is not None:
        most = managed.storage.size.bytes
    elif action.name not in servers:
        most = max(most, desired.storage_bytes or 0)
    every = (*observed.claims, *observed.server_claims)
    claim = next((c for c in every if c.name == action.name), None)
    if claim is None or size <= claim.requested:
        yield f"claim {action.name} does not grow"
    if size > most:
        yield f"claim {action.name} grows beyond what is allowed"


def _has_left(desired: Desired, observed: Observed, action: DeleteClaim) -> bool:
    """Whether a claim is on record as that of a member that its shard does without for good."""
    recorded = {(one.claim, one.uid) for one in observed.status.left_members}
    claim = next(c for c in observed.claims if c.name == action.name)
    child = observed.sets().get(claim.shard)
    beyond = child is not None and claim.ordinal >= max(desired.replicas, child.replicas or 0)
    whole = _is_whole(desired, observed, claim.shard)
    return beyond and whole and (action.name, action.uid) in recorded


def _shards(observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    for action in actions:
        match action:
            case Stop(shard=shard) if not _empty(observed, shard):
                yield f"shard-{shard} is stopped before it is empty"
            case DeleteChild(kind="StatefulSet", orphan=False) if _has_pods(observed, action.name):
                yield f"StatefulSet {action.name} has pods"
            case MarkDrained(shard=shard) if not _read_out(observed, shard):
                yield f"shard-{shard} is not empty"
            case Elect(shard=shard) if not _lost(observed, shard):
                yield f"shard-{shard} has members in sync"
            case _:
                pass


def _sleep(desired: Desired, observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    """All pods of a set go only by order, with their claims kept; ZooKeeper's after all others."""
    for action in actions:
        if not isinstance(action, Hibernate):
            continue
        if not desired.spec.hibernated or desired.problem is not None:
            yield "a cluster that is not to hibernate is stopped"
        if desired.spec.brokers.storage.type is StorageType.EPHEMERAL:
            yield "what goes with its pods is stopped"
        if action.shard is None and any(pod.shard is not None for pod in observed.pods):
            yield "ZooKeeper is stopped before the brokers"


def _fences(desired: Desired, observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    """A member is fenced while its shard does without, or somebody said that it need not; its log
    stays."""
    said = desired.resource.fenced
    named = {name.removesuffix("!") for name in said}
    for action in actions:
        match action:
            case FenceMember():
                pods = observed.pods_of(action.shard)
                others = [pod for pod in pods if pod.name != action.pod]
                whole = "*" in said or all(pod.name in named for pod in pods)
                served = sum(_holds(observed, pod) for pod in others) >= desired.min_in_sync
                if action.pod not in named and "*" not in said:
                    yield f"{action.pod} is fenced, and nobody has asked for it"
                if not (served or whole or f"{action.pod}!" in said):
                    yield f"{action.pod} is fenced while its shard needs it"
            case DeleteClaim() if action.name.removeprefix("data-") in named:
                yield f"claim {action.name} is of a member that is fenced"
            case _:
                pass


def _has_pods(observed: Observed, name: str) -> bool:
    child = observed.child(STATEFUL_SET, name)
    return child is None or child.replicas != 0


def _read_out(observed: Observed, number: int) -> bool:
    left = observed.remaining.get(number)
    return left is not None and left.nothing


def _lost(observed: Observed, number: int) -> bool:
    """Whether nobody leads the shard, and nobody in sync can."""
    shard = _shard(observed, number)
    return shard is not None and not shard.in_sync and shard.master is None


def _empty(observed: Observed, number: int) -> bool:
    """Whether a shard is on record as drained, or never had a member."""
    registry = observed.registry
    if registry is None or not registry.connected:
        return False
    shard = registry.shards.get(number)
    return shard is None or shard.drained
