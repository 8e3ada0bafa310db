"""The status of a cluster: conditions, printed values, events."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.certificates.plan import CONDITION as CERTIFICATES
from imago_operator.manifests.services import NAME_SERVICE, SDKS
from imago_operator.model import names
from imago_operator.model.desired import (
    Desired,
    UnreadableSpec,
    recovery_of,
    signing,
    zookeeper_for_clients,
)
from imago_operator.model.listeners import serves_sdks
from imago_operator.model.state import ConditionFinding, written
from imago_operator.model.wording import counted
from imago_operator.plan.look import ClusterLook
from imago_operator.plan.rows import PlanRow, ReconcilePlan
from imago_operator.reporting.entrances import listeners
from imago_operator.reporting.room import deleted_for_room
from imago_operator.reporting.service import FENCED, HIBERNATED, SERVED, available, served
from imago_operator.spec.cluster.brokers import MemberStatus
from imago_operator.spec.cluster.cluster_status import (
    BrokerCounts,
    ClaimStatus,
    ClusterStatus,
    ReconcileProgress,
    ShardStatus,
)
from imago_operator.spec.schema.common import Condition, ConditionStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from imago_operator.model.state import Observed, Pod, Shard

GOOD: Final = {
    "Ready": "AllShardsServing",
    "Available": SERVED,
    "ResourcesApplied": "Applied",
    "ConfigApplied": "Applied",
    CERTIFICATES: "Issued",
    "StorageReady": "Bound",
    "ZooKeeperConnected": "Connected",
}
"""Conditions that are always there, good when True, with the reason that says so."""
MESSAGE_MAX: Final = 1024
MISTAKE_MAX: Final = 500
LAGS: Final = ((0, "0"), (1 << 20, "<1Mi"), (64 << 20, "<64Mi"))
NOT_READY: Final = {
    PlanRow.READING: "NotYetReconciled",
    PlanRow.REGISTRY: "ZooKeeperUnavailable",
    PlanRow.FAILOVER: "ShardOffline",
    PlanRow.PAUSED: "Paused",
    PlanRow.HIBERNATING: HIBERNATED,
    PlanRow.FENCING: FENCED,
    PlanRow.DELETING: "Deleting",
    PlanRow.INVALID: "InvalidSpec",
}


def status_of(
    desired: Desired | UnreadableSpec, observed: Observed, plan: ReconcilePlan, now: datetime
) -> ClusterStatus:
    """Return the status after a look; equal to the old one where nothing changed."""
    before = observed.status
    new = replace(
        before,
        observed_generation=desired.resource.generation,
        progress=_progress(plan, before, now),
        **plan.record,
    )
    if isinstance(desired, Desired) and observed.synced:
        new = _seen(ClusterLook(desired, observed, now), new)
    else:
        # What else it says is as it was when somebody last looked, and dated so.
        new = replace(new, brokers=replace(new.brokers, in_sync_replicas=None))
    found = {finding.type: finding for finding in findings(desired, observed, plan, now)}
    return replace(new, conditions=_conditions(found.values(), before, desired, now))


def in_short(status: ClusterStatus) -> tuple[str, str]:
    """Return whether a cluster is Ready, and what its clients can do on every shard."""
    holds = {condition.type: condition for condition in status.conditions}
    ready, service = holds.get("Ready"), holds.get("Available")
    word = ready.status.value if ready else ConditionStatus.UNKNOWN.value
    if service is None or service.status is ConditionStatus.UNKNOWN:
        return word, "unknown"
    if service.status is ConditionStatus.TRUE:
        return word, "puts, gets"
    if service.reason == HIBERNATED:
        return word, "hibernates"
    return word, "gets" if service.reason == "PutsRefused" else "not every shard"


def mistake(error: Exception) -> ConditionFinding:
    """Say that a look ended in something that is no error of anybody else's."""
    text = f"A defect of the operator: {type(error).__name__}: {error}"[:MISTAKE_MAX]
    return ConditionFinding(
        type="Stalled", holds=True, reason="InternalError", message=f"{text}; it tries again."
    )


def stalled(
    before: ClusterStatus, finding: ConditionFinding, generation: int, now: datetime
) -> ClusterStatus:
    """Return a status to which only this is added: nothing else is known."""
    old = {condition.type: condition for condition in before.conditions}
    new = condition_of(finding, old.get(finding.type), generation, now)
    kept = [c for c in before.conditions if c.type != finding.type]
    conditions = tuple(sorted((*kept, new), key=lambda c: (c.type != "Ready", c.type)))
    return replace(before, observed_generation=generation, conditions=conditions)


def _seen(look: ClusterLook, status: ClusterStatus) -> ClusterStatus:
    desired, registry = look.desired, look.observed.registry
    inside = f"{names.bootstrap(desired.name)}.{desired.namespace}.svc"
    shards = look.running
    pods = [pod for n in shards for pod in look.observed.pods_of(n)]
    in_sync = [s.in_sync for n in shards if (s := look.shard(n))]
    versions = {pod.broker.version if pod.broker else None for pod in pods}
    return replace(
        status,
        cluster_id=status.cluster_id or (registry.cluster_id if registry else None),
        recovered_from=status.recovered_from or _recovered(look),
        version=_only(versions) or status.version,
        desired_version=desired.version,
        feature_level=(registry.feature_level if registry else None) or status.feature_level,
        operator_version=desired.operator.version,
        brokers=BrokerCounts(
            shards=len(shards),
            replicas=len(shards) * desired.replicas,
            ready_replicas=sum(pod.serving for pod in pods),
            updated_replicas=sum(not look.outdated(pod) for pod in pods),
            in_sync_replicas=sum(map(len, in_sync)) if registry and registry.connected else None,
        ),
        selector=f"{names.CLUSTER_LABEL}={desired.name},{names.ROLE_LABEL}=master",
        zookeeper=zookeeper_for_clients(desired.resource, desired.spec) or None,
        listeners=listeners(look),
        bootstrap=f"{inside}:{NAME_SERVICE}",
        grpc=f"{inside}:{SDKS}" if serves_sdks(desired.spec) else None,
        shards=tuple(_shard(look, n) for n in sorted({*look.running, *look.stopped})),
        storage=tuple(_claims(look)),
    )


def _recovered(look: ClusterLook) -> str | None:
    """Return the backup that no member begins with any more, since every shard is led."""
    wanted = recovery_of(look.desired.spec)
    if wanted is None or look.observed.registry is None:
        return None
    led = [(shard := look.shard(n)) is not None and shard.master is not None for n in look.running]
    whole = led and all(led) and len(led) >= look.desired.spec.brokers.shards
    return wanted.backup if whole else None


def _only(versions: set[str | None]) -> str | None:
    return next(iter(versions)) if len(versions) == 1 else None


def _shard(look: ClusterLook, number: int) -> ShardStatus:
    shard = look.shard(number)
    pods = look.observed.pods_of(number)
    master = next(
        (p.name for p in pods if shard and p.broker and p.broker.uuid == shard.master), None
    )
    said = served(look, number)
    return ShardStatus(
        id=number,
        epoch=shard.epoch if shard else None,
        master=master,
        phase=HIBERNATED if number in look.sleeping else _phase(look, shard),
        puts=said.puts,
        gets=said.gets,
        refusal=said.why[:MESSAGE_MAX] or None,
        deleted_for_room=deleted_for_room(look, number),
        members=tuple(_member(shard, pod) for pod in pods),
    )


def _phase(look: ClusterLook, shard: Shard | None) -> str:
    if shard is None:
        return "Unknown"
    cases = (
        (shard.drained, "Drained"),
        (shard.master is None, "Offline"),
        (shard.id in look.victims, "Draining"),
        (shard.cordoned, "Cordoned"),
        (look.is_down(shard.id), "Degraded"),
    )
    return next((name for holds, name in cases if holds), "Serving")


def _member(shard: Shard | None, pod: Pod) -> MemberStatus:
    if pod.broker is None or shard is None:
        return MemberStatus(pod=pod.name, role="Unknown", state="Offline")
    if pod.broker.fenced:
        return MemberStatus(pod=pod.name, role="Slave", state="Fenced")
    lag = {member.uuid: member.lag_bytes for member in shard.members}.get(pod.broker.uuid)
    return MemberStatus(
        pod=pod.name,
        role="Master" if pod.broker.uuid == shard.master else "Slave",
        state="InSync" if pod.broker.uuid in shard.in_sync else "CatchingUp",
        lag=None if lag is None else bucket(lag),
    )


def bucket(lag: int) -> str:
    """Return a lag so roughly that it does not change with every message."""
    return next((name for limit, name in LAGS if lag <= limit), ">64Mi")


def _claims(look: ClusterLook) -> Iterator[ClaimStatus]:
    size = look.desired.storage_bytes
    for claim in look.observed.claims:
        as_wanted = claim.capacity == claim.requested == size and claim.phase == "Bound"
        if not as_wanted:
            yield ClaimStatus(
                claim=claim.name,
                requested=str(claim.requested),
                capacity=None if claim.capacity is None else str(claim.capacity),
                condition=min(claim.conditions, default=claim.phase),
            )


def _progress(plan: ReconcilePlan, before: ClusterStatus, now: datetime) -> ReconcileProgress:
    step = plan.wait.key if plan.wait else plan.row.title
    old = before.progress
    same = old is not None and old.step == step
    return ReconcileProgress(
        row=plan.row.title,
        step=step,
        since=old.since if old and same else written(now),
        waits_for=plan.wait.message[:MESSAGE_MAX] if plan.wait else None,
        next=plan.next[:MESSAGE_MAX] or None,
    )


def findings(
    desired: Desired | UnreadableSpec, observed: Observed, plan: ReconcilePlan, now: datetime
) -> Iterator[ConditionFinding]:
    """Yield what holds now; of one type the last counts."""
    yield from _summary(desired, observed, plan, now)
    if begun := plan.record.get("rollout", observed.status.rollout):
        # It is not over while something else is done first.
        text = f"{counted(begun.remaining, 'pod')} to restart."
        yield ConditionFinding(type="Updating", holds=True, reason=begun.cause, message=text)
    yield from plan.findings
    # What is known to be in the way says more than how long it has been.
    stands = any(finding.type == "Stalled" for finding in plan.findings)
    if plan.late_s is not None and plan.wait is not None and not stands:
        # The moment, not the delay: the status must not change all the time.
        text = f"Late since {written(now - timedelta(seconds=plan.late_s))}: {plan.explain()}."
        yield ConditionFinding(type="Stalled", holds=True, reason="DeadlineExceeded", message=text)


def _summary(
    desired: Desired | UnreadableSpec, observed: Observed, plan: ReconcilePlan, now: datetime
) -> Iterator[ConditionFinding]:
    if isinstance(desired, UnreadableSpec) or not observed.synced:
        reason = NOT_READY.get(plan.row, "NotYetReconciled")
        yield ConditionFinding(type="Ready", holds=False, reason=reason, message=plan.explain())
        if not desired.resource.deleting:
            yield _unseen(observed)
        return
    look = ClusterLook(desired, observed, now)
    found = available(look)
    yield found
    known = observed.registry is not None and observed.registry.connected
    if look.sleeping and not known:
        text = "No broker runs that could have a session."
        yield ConditionFinding(
            type="ZooKeeperConnected", holds=None, reason=HIBERNATED, message=text
        )
    if known:
        yield ConditionFinding(
            type="ZooKeeperConnected", holds=True, reason="Connected", message=""
        )
    yield _ready(look, plan, found)
    working = plan.wait is not None or bool(plan.actions)
    if working and plan.row is not PlanRow.BLOCKED:
        text = plan.explain()
        yield ConditionFinding(type="Reconciling", holds=True, reason=plan.row.title, message=text)


def _unseen(observed: Observed) -> ConditionFinding:
    """Say that nobody looks whether shards are served, and when somebody did."""
    when = observed.status.looked_at
    text = f"Nothing was observed since {when}." if when else "Nothing was observed yet."
    return ConditionFinding(type="Available", holds=None, reason="NotObserved", message=text)


def _ready(look: ClusterLook, plan: ReconcilePlan, service: ConditionFinding) -> ConditionFinding:
    """Ready: every shard serves with all its members, and nothing stands still."""
    kept = look.desired.problem is not None and plan.row is PlanRow.INVALID
    if not kept and (reason := NOT_READY.get(plan.row)):
        return ConditionFinding(type="Ready", holds=False, reason=reason, message=plan.explain())
    if not look.sleeping.isdisjoint(look.targets):
        return replace(service, type="Ready")
    starting = [n for n in look.targets if look.is_down(n) or not _serves(look, n)]
    if starting:
        listed = ", ".join(f"shard-{n}" for n in starting)
        text = f"{listed}: members are not all ready."
        return ConditionFinding(type="Ready", holds=False, reason="BrokersStarting", message=text)
    if full := [pod.name for pod in look.observed.pods if pod.broker and pod.broker.full]:
        text = f"The disk of {', '.join(full)} is full: messages are refused."
        return ConditionFinding(type="Ready", holds=False, reason="DiskFull", message=text)
    if not service.holds:
        return replace(service, type="Ready", holds=False)
    count = len(look.targets)
    text = f"{counted(count, 'shard')} in service."
    return ConditionFinding(type="Ready", holds=True, reason=GOOD["Ready"], message=text)


def _serves(look: ClusterLook, number: int) -> bool:
    shard = look.shard(number)
    return shard is not None and shard.master is not None


def _conditions(
    found: Iterable[ConditionFinding],
    before: ClusterStatus,
    desired: Desired | UnreadableSpec,
    now: datetime,
) -> tuple[Condition, ...]:
    old = {condition.type: condition for condition in before.conditions}
    asked = set(GOOD) - ({CERTIFICATES} if _has_no_certificates(desired) else set())
    kept = [c for c in before.conditions if c.type in asked]
    said = {finding.type: finding for finding in found}
    made = [
        condition_of(f, old.get(f.type), desired.resource.generation, now) for f in said.values()
    ]
    unsaid = [c for c in kept if c.type not in said]
    return tuple(sorted((*made, *unsaid), key=lambda c: (c.type != "Ready", c.type)))


def _has_no_certificates(desired: Desired | UnreadableSpec) -> bool:
    """Whether nobody looks after certificates: what was said of them may no longer be so."""
    return isinstance(desired, Desired) and signing(desired) is None


def condition_of(
    finding: ConditionFinding, old: Condition | None, generation: int, now: datetime
) -> Condition:
    """Return a finding as a resource's status has it: since when it holds, too."""
    status = ConditionStatus.of(finding.holds)
    same = old is not None and old.status is status
    return Condition(
        type=finding.type,
        status=status,
        reason=finding.reason,
        message=finding.message[:MESSAGE_MAX],
        observed_generation=generation,
        last_transition_time=old.last_transition_time if old and same else written(now),
    )
