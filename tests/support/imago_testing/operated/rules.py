"""What no plan may ever do, whatever is seen: checked on every look of every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.manifests.brokers import spec_hash
from imago_operator.manifests.zookeeper import zookeeper_notes
from imago_operator.model import names
from imago_operator.model.actions import (
    Apply,
    Cordon,
    DeleteChild,
    DeleteClaim,
    DeletePod,
    Elect,
    Handover,
    Hibernate,
    MarkDrained,
    Stop,
    destructive,
)
from imago_operator.model.desired import Desired, UnreadableSpec
from imago_operator.model.state import STATEFUL_SET, Observed, Pod
from imago_operator.promises import broken
from imago_operator.spec.cluster.cluster import OnOperatorUpgrade
from imago_testing.operated.claims import can_lead, claims, down, in_sync
from imago_testing.operated.sleeping import asleep, has_no_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from imago_operator.plan import ReconcilePlan


def violations(
    desired: Desired | UnreadableSpec, observed: Observed, plan: ReconcilePlan, now: datetime
) -> list[str]:
    """Return every promise that the plan breaks."""
    if isinstance(desired, UnreadableSpec) or desired.resource.deleting or desired.resource.paused:
        return ["acts on what is to stand still"] if plan.actions else []
    checks = (
        *(_one_disruption, _restarts, _members, _servers, _pods, claims, _uninformed),
        *(_held, _drained, _elections, _repair, _kept, asleep),
    )
    found = [text for check in checks for text in check(desired, observed, plan, now)]
    refused = broken(desired, observed, plan.actions, now)
    return [*found, *(f"the operator itself refuses: {text}" for text in refused)]


def _of(observed: Observed, action: DeletePod | Handover) -> Pod | None:
    name = action.name if isinstance(action, DeletePod) else action.pod
    return next((pod for pod in observed.pods if pod.name == name), None)


def _taken(observed: Observed, plan: ReconcilePlan) -> Iterator[Pod]:
    """Yield members that the plan takes away; what never ran, or goes with its disk, is none."""
    given_up = {action.name for action in plan.actions if isinstance(action, DeleteClaim)}
    for action in plan.actions:
        if isinstance(action, (DeletePod, Handover)):
            pod = _of(observed, action)
            if pod is None or pod.shard is None or f"data-{pod.name}" in given_up:
                continue
            if pod.broker is not None or pod.ready or not pod.waiting:
                yield pod


def _may_be_in_sync(observed: Observed, pod: Pod) -> bool:
    """Whether others may rely on the member: one that does not answer may be in sync still."""
    held_by = in_sync(observed, pod.shard)
    if pod.broker is not None:
        return pod.broker.uuid in held_by
    return bool(held_by - {p.broker.uuid for p in observed.pods_of(pod.shard) if p.broker})


def _one_disruption(
    desired: Desired, observed: Observed, plan: ReconcilePlan, now: datetime
) -> Iterator[str]:
    taken = list(_taken(observed, plan))
    shards = [pod.shard for pod in taken]
    if len(shards) != len(set(shards)):
        yield "two voluntary disruptions in one shard"
    for pod in taken:
        others = [other for other in observed.pods_of(pod.shard) if other.name != pod.name]
        if any(other.deleting for other in others):
            yield f"{pod.name} goes while another member of its shard does"
        others = _needed(desired, pod, others)
        if _is_late(desired, pod, now) and not _may_be_in_sync(observed, pod):
            continue
        if sum(can_lead(observed, other) for other in others) < max(
            desired.replicas - 1, len(others)
        ):
            yield f"{pod.name} goes while others of its shard cannot lead"
        if not _is_let_go(desired, observed, pod):
            yield f"{pod.name} goes though its broker says no"
    stopped = {n for n, child in observed.sets().items() if child.replicas == 0}
    lacking = {n for n in observed.sets() if n not in stopped and down(desired, observed, n)}
    hurt = {pod.shard for pod in taken if _may_be_in_sync(observed, pod)}
    if hurt and len(lacking | hurt) > desired.spec.update_policy.max_unavailable_shards:
        yield "more shards down than the policy allows"


def _needed(desired: Desired, pod: Pod, others: list[Pod]) -> list[Pod]:
    """Return who must be able to lead while a member goes; one that leaves is not waited for."""
    if pod.ordinal < desired.replicas:
        return others
    return [other for other in others if other.ordinal < desired.replicas]


def _restarts(
    desired: Desired, observed: Observed, plan: ReconcilePlan, now: datetime
) -> Iterator[str]:
    """A member that its shard lacks anyway takes as long to come back as any other."""
    concerned = {pod.shard for pod in _taken(observed, plan)}
    size = {number: child.replicas or 0 for number, child in observed.sets().items()}
    going = [p for p in observed.pods if p.deleting and not _is_late(desired, p, now)]
    # Who leaves, or whose shard stops, does not come back: that is no restart.
    goes = {p.shard for p in going if p.ordinal < size.get(p.shard or 0, p.ordinal + 1)}
    both = concerned | (goes - {None})
    if concerned and len(both) > desired.spec.update_policy.max_unavailable_shards:
        yield "restarts in more shards than the policy allows"


def _is_late(desired: Desired, pod: Pod, now: datetime) -> bool:
    """Whether a pod has had its time to be ready."""
    waited = (now - pod.turned).total_seconds() if pod.turned and not pod.ready else 0.0
    return waited >= desired.spec.update_policy.ready_timeout.seconds


def _is_let_go(desired: Desired, observed: Observed, pod: Pod) -> bool:
    """Whether the broker's own answer allows a restart; one that does not answer has no say."""
    if pod.broker is None:
        return not _may_be_in_sync(observed, pod)
    usual = {"belowMinInSync"} if desired.replicas <= desired.min_in_sync else set()
    if desired.replicas == 1:
        # Nobody else ever has what it has: older brokers count all of it as not copied.
        usual |= {"noMasterAfter", "belowMinInSync", "singleReplica", "unreplicatedBytes"}
    check = pod.broker.restart
    return check is not None and set(check.risks) <= usual


def _members(
    desired: Desired, observed: Observed, plan: ReconcilePlan, _: datetime
) -> Iterator[str]:
    """A set gets fewer members only one by one, while all that it is to have could lead.

    One that is made anew has all that are there: its controller takes the others away.
    """
    for action in plan.actions:
        if not isinstance(action, Apply) or action.manifest["kind"] != STATEFUL_SET:
            continue
        said = action.manifest["metadata"]["labels"].get(names.SHARD_LABEL)
        fewer = action.manifest["spec"]["replicas"]
        if said is not None and fewer:
            yield from _fewer(desired, observed, int(said), fewer)


def _fewer(desired: Desired, observed: Observed, number: int, fewer: int) -> Iterator[str]:
    child = observed.child(STATEFUL_SET, names.stateful_set(desired.name, number))
    pods = observed.pods_of(number)
    goes = [pod for pod in pods if pod.ordinal >= fewer]
    if child is None:
        lost = [pod.name for pod in goes if not pod.deleting]
        yield from [f"shard-{number} is made anew without {', '.join(lost)}"] if lost else []
    elif goes and fewer < (child.replicas or 0):
        wanted = [pod for pod in pods if pod.ordinal < min(fewer, desired.replicas)]
        if len(goes) > 1 or any(pod.deleting for pod in pods):
            yield f"shard-{number} loses several members at once"
        if len(wanted) < desired.replicas or not all(can_lead(observed, p) for p in wanted):
            yield f"shard-{number} loses a member while others cannot lead"
        able = sum(can_lead(observed, pod) for pod in pods if pod.ordinal < fewer)
        yield from _leaving(observed, number, goes, able)


def _leaving(observed: Observed, number: int, goes: list[Pod], able: int) -> Iterator[str]:
    """A member that leaves does not lead, and no put needs more than those that stay."""
    registry = observed.registry
    shard = registry.shards.get(number) if registry else None
    if shard and any(p.broker and p.broker.uuid == shard.master for p in goes):
        yield f"shard-{number} loses its leader without a handover"
    for pod in observed.pods_of(number):
        least = pod.broker.config.get("replication.min_in_sync", 0) if pod.broker else 0
        if isinstance(least, int) and least > able:
            yield f"shard-{number} has {able} members left in sync, and puts need {least}"


def _servers(
    desired: Desired, observed: Observed, plan: ReconcilePlan, now: datetime
) -> Iterator[str]:
    """Of ZooKeeper's servers one goes at a time, and one that serves only while all others do."""
    made = observed.child(STATEFUL_SET, names.zookeeper(desired.name))
    for action in plan.actions:
        pod = _of(observed, action) if isinstance(action, DeletePod) else None
        if pod is None or pod.shard is not None or pod.waiting:
            continue
        others = [other for other in observed.pods_of(None) if other.name != pod.name]
        if any(other.deleting for other in others):
            yield f"{pod.name} goes while another server of ZooKeeper does"
        serving = sum(other.serving for other in others)
        whole = serving >= max(((made and made.replicas) or 1) - 1, len(others))
        if not whole and (pod.serving or not _is_late(desired, pod, now)):
            yield f"{pod.name} goes while ZooKeeper lacks another server"
        if pod.annotations == zookeeper_notes(desired) and not pod.edited:
            yield from _moved(desired, observed, pod)


def _moved(desired: Desired, observed: Observed, pod: Pod) -> Iterator[str]:
    """A server that a restart changes nothing of goes only to get to another node."""
    servers = observed.pods_of(None)
    beside = [other for other in servers if other.node == pod.node]
    taken = {other.node for other in servers}
    nodes = (observed.nodes or {}).values()
    if pod.node is None or 2 * len(beside) <= len(servers):
        yield f"{pod.name} moves from a node without a majority"
    if not any(node.open and node.name not in taken for node in nodes):
        yield f"{pod.name} moves though no node is free"
    sets = {n: child for n, child in observed.sets().items() if child.replicas}
    lacking = [n for n in sets if down(desired, observed, n)]
    if lacking:
        yield f"{pod.name} moves while shards {lacking} lack members"


def _pods(_: Desired, observed: Observed, plan: ReconcilePlan, __: datetime) -> Iterator[str]:
    deleted = [action for action in plan.actions if isinstance(action, DeletePod)]
    if len({action.shard for action in deleted}) != len(deleted):
        yield "two pods of one shard"
    for action in deleted:
        pod = _of(observed, action)
        if pod is None or pod.uid != action.uid or pod.shard != action.shard:
            yield f"a pod that was not seen: {action}"


def _uninformed(
    desired: Desired, observed: Observed, plan: ReconcilePlan, now: datetime
) -> Iterator[str]:
    """Where something is not known, nothing is taken away but what never ran."""
    registry = observed.registry
    known = observed.synced and registry is not None and registry.connected
    recorded = observed.status.cluster_id
    other = registry is not None and None not in (recorded, registry.cluster_id)
    if other and registry is not None and recorded != registry.cluster_id:
        known = False
    if known:
        return
    for action in destructive(plan.actions):
        pod = _of(observed, action) if isinstance(action, DeletePod) else None
        unwanted = isinstance(action, DeleteChild) and (
            action.kind != STATEFUL_SET or action.orphan
        )
        runs = pod is None or not (pod.stuck or (pod.waiting and _is_late(desired, pod, now)))
        stops = isinstance(action, Hibernate) and has_no_registry(observed, desired)
        harmless = unwanted or stops or not (runs or (pod and pod.serving))
        if not (harmless or type(action).__name__ == "OwnClaim"):
            yield f"acts without knowing: {action}"
    if not observed.synced and plan.actions:
        yield "acts before Kubernetes was read"


def _held(desired: Desired, observed: Observed, plan: ReconcilePlan, _: datetime) -> Iterator[str]:
    """A new operator alone restarts nothing."""
    policy = desired.spec.update_policy.on_operator_upgrade
    if policy is not OnOperatorUpgrade.HOLD or desired.resource.approved:
        return
    for pod in _taken(observed, plan):
        claims = [c for c in observed.claims if c.name == f"data-{pod.name}"]
        ordered = pod.annotations.get(names.RESTART, "") != desired.resource.restart
        same = pod.annotations.get(names.SPEC_HASH) == spec_hash(desired, pod.shard or 0)
        if pod.ordinal >= desired.spec.brokers.replicas_per_shard:
            continue  # it is to leave
        moved = observed.status.moved_member
        if moved is not None and moved.pod == pod.name:
            continue  # so is its claim
        if same and not (ordered or pod.edited) and not any(c.conditions for c in claims):
            yield f"restarts {pod.name}, about which the user said nothing new"


def _drained(_: Desired, observed: Observed, plan: ReconcilePlan, __: datetime) -> Iterator[str]:
    registry = observed.registry
    for action in plan.actions:
        if isinstance(action, MarkDrained):
            left = observed.remaining.get(action.shard)
            if left is None or not left.nothing:
                yield f"says of a shard that it is empty: {action}"
        if isinstance(action, Stop):
            shard = registry.shards.get(action.shard) if registry else None
            if shard is not None and not shard.drained:
                yield f"stops a shard that is needed: {action.shard}"


def _elections(
    desired: Desired, observed: Observed, plan: ReconcilePlan, _: datetime
) -> Iterator[str]:
    for action in plan.actions:
        if isinstance(action, Elect):
            shard = observed.registry.shards[action.shard] if observed.registry else None
            allowed = desired.resource.allow_data_loss == str(action.shard)
            if not allowed or shard is None or shard.in_sync or shard.master:
                yield f"elects who may lack messages: {action}"


def _kept(desired: Desired, observed: Observed, plan: ReconcilePlan, _: datetime) -> Iterator[str]:
    """By the spec before one that is wrong nothing is restarted or removed."""
    if desired.problem is None:
        return
    if desired.observed_only and plan.actions:
        yield "acts on what it only observes"
    if any(_taken(observed, plan)):
        yield "restarts by a spec that somebody has tried to change"
    for action in plan.actions:
        sets = isinstance(action, DeleteChild) and action.kind == STATEFUL_SET
        gone = sets and not action.orphan  # type: ignore[union-attr]  # it is one
        if gone or isinstance(action, (Cordon, Hibernate, MarkDrained, Stop)):
            yield f"removes by a spec that somebody has tried to change: {action}"
    if not any(f.type == "Stalled" for f in plan.findings) and plan.row.number > 3:
        yield "does not say that the spec is wrong"


def _repair(
    desired: Desired, observed: Observed, plan: ReconcilePlan, _: datetime
) -> Iterator[str]:
    """New shards and missing objects never wait for health."""
    made = {getattr(a, "manifest", {}).get("metadata", {}).get("name") for a in plan.actions}
    refused = "DowngradeRefused" in {f.reason for f in plan.findings}
    first = names.stateful_set(desired.name, 0)
    nothing = observed.synced and not (observed.children or observed.pods or observed.status.shards)
    if (
        nothing
        and not refused
        and first not in made
        and 0 not in desired.spec.brokers.remove_shards
    ):
        yield "does not make what is missing"
