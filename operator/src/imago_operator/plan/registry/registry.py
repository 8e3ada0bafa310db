"""What the registry says, or does not say: no answer, a beginning, a shard without a master."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.model import names, versions
from imago_operator.model.actions import Elect
from imago_operator.model.state import ConditionFinding, PlanWait, parsed
from imago_operator.model.wording import counted
from imago_operator.plan import membership
from imago_operator.plan.members.leaving import called_back
from imago_operator.plan.restarts.staging import has_absent_user
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.cluster.zookeeper import RegistryAccess

if TYPE_CHECKING:
    from imago_operator.model.state import Pod, Shard
    from imago_operator.plan.look import ClusterLook

BOOTSTRAP_S: Final = 600.0
REGISTRY_S: Final = 300.0
FAILOVER_S: Final = 60.0
"""After this a shard without anybody in sync may be led by another, if a person says so."""
CONNECTED: Final = "ZooKeeperConnected"
OPEN: Final = "RegistryOpen"


def registry(look: ClusterLook) -> PlanStep | None:
    """Nobody answers, or nobody has ZooKeeper: nothing may be taken away."""
    found = look.observed.registry
    begun = look.observed.status.cluster_id is not None
    if found is None:
        return _silence(look) if begun else _bootstrap("a broker to answer")
    if not found.connected:
        text = f"ZooKeeper at {look.desired.zookeeper_connect}"
        said = ConditionFinding(
            type=CONNECTED, holds=False, reason="ZooKeeperUnavailable", message=text
        )
        wait = PlanWait(key="zookeeper", message=text, deadline_s=REGISTRY_S)
        return PlanStep(
            row=PlanRow.REGISTRY, wait=wait, findings=(said,), next="go on where it stopped"
        )
    if look.strange:
        text = f"cluster {look.observed.status.cluster_id} instead of {found.cluster_id}"
        said = ConditionFinding(type=CONNECTED, holds=False, reason="OtherCluster", message=text)
        wait = PlanWait(key="strange", message=text, deadline_s=REGISTRY_S)
        return PlanStep(
            row=PlanRow.REGISTRY, wait=wait, findings=(said,), next="go on where it stopped"
        )
    if found.cluster_id is None:
        return _bootstrap("brokers to name the cluster in the registry")
    return None


def _silence(look: ClusterLook) -> PlanStep:
    pods = [pod for pod in look.observed.pods if pod.shard is not None]
    text = f"one of {counted(len(pods), 'broker')} to answer"
    said = ConditionFinding(
        type=CONNECTED, holds=False, reason="NoBrokerAnswers", message=f"Waits for {text}."
    )
    wait = PlanWait(key="silence", message=text, deadline_s=REGISTRY_S)
    # Without their Secret none of them can begin: that must show, too.
    found = (said, *_lost(look))
    return PlanStep(row=PlanRow.REGISTRY, wait=wait, findings=found, next="check the shards")


def _bootstrap(what: str) -> PlanStep:
    said = ConditionFinding(
        type="Reconciling", holds=True, reason="Bootstrapping", message=f"Waits for {what}."
    )
    wait = PlanWait(key="bootstrap", message=what, deadline_s=BOOTSTRAP_S)
    return PlanStep(
        row=PlanRow.BOOTSTRAP, wait=wait, findings=(said,), next="shards elect their masters"
    )


def openness(look: ClusterLook) -> PlanStep:
    """Say that others than the brokers may change their nodes, and why."""
    said = _open_as_said(look) or _open_still(look)
    return PlanStep(row=PlanRow.REGISTRY, findings=(said,) if said else ())


def _open_as_said(look: ClusterLook) -> ConditionFinding | None:
    """Return what the spec leaves open; None: it has the nodes closed."""
    zookeeper = look.desired.spec.zookeeper
    reason, managed, external = "AsSpecified", zookeeper.managed, zookeeper.external
    if managed is not None and managed.authentication is not RegistryAccess.ENFORCING:
        text = f"spec.zookeeper.managed.authentication is {managed.authentication}"
    elif managed is not None and not versions.has_registry_user(look.desired.version):
        reason = "VersionTooOld"
        text = f"Brokers of version {look.desired.version} can be no user of ZooKeeper"
    elif external is not None and (external.auth is None or not external.auth.protect):
        what = "auth" if external.auth is None else "auth.protect"
        text = f"spec.zookeeper.external has no {what}"
    else:
        return None
    text = f"{text}: anyone who reaches ZooKeeper may change the brokers' nodes."
    return ConditionFinding(type=OPEN, holds=True, reason=reason, message=text)


def _open_still(look: ClusterLook) -> ConditionFinding | None:
    """Return how many pods do not close their nodes yet; None: all do, or nobody asks for it."""
    if look.desired.spec.zookeeper.managed is None:
        return None
    pods = [pod for pod in look.observed.pods if pod.shard is not None]
    still = [pod for pod in pods if pod.registry_access is not RegistryAccess.ENFORCING]
    if not still:
        return None
    if look.observed.registry_user_refused and look.desired.registry_access is RegistryAccess.NONE:
        text = f"The operator may not read Secret {names.registry_user(look.desired.name)}."
        return ConditionFinding(type=OPEN, holds=True, reason="SecretRefused", message=text)
    text = f"{counted(len(still), 'broker')} to restart before all have closed ZooKeeper's nodes."
    return ConditionFinding(type=OPEN, holds=True, reason="RestartsPending", message=text)


def user_is_missing(look: ClusterLook) -> bool:
    """Whether brokers are to be a user of ZooKeeper whose Secret is not there."""
    wanted = look.desired.registry_access is not RegistryAccess.NONE
    return wanted and look.observed.registry_user is False


def user_is_lost(look: ClusterLook) -> bool:
    """Whether brokers run whose Secret is gone: another password would be another user.

    Or may have run until now: one that is away comes back to the nodes that it has closed.
    """
    if not user_is_missing(look):
        return False
    there = any(p.registry_access is not RegistryAccess.NONE for p in look.observed.pods)
    return there or has_absent_user(look.desired, look.observed)


def user(look: ClusterLook) -> PlanStep | None:
    """The brokers' Secret is gone: none that is restarted comes back."""
    found = _lost(look)
    if not found:
        return None
    name = names.registry_user(look.desired.name)
    wait = PlanWait(key="zookeeper user", message=f"Secret {name}", deadline_s=REGISTRY_S)
    cure = "restart brokers again once it is there"
    return PlanStep(row=PlanRow.REGISTRY, wait=wait, findings=found, next=cure)


def _lost(look: ClusterLook) -> tuple[ConditionFinding, ...]:
    if not user_is_lost(look):
        return ()
    name = names.registry_user(look.desired.name)
    text = f"Secret {name} is gone: brokers that are restarted cannot start."
    return (ConditionFinding(type="Degraded", holds=True, reason="RegistryUserLost", message=text),)


def failover(look: ClusterLook) -> PlanStep | None:
    """A shard has no master: its members elect one; a person may allow a loss."""
    for number in look.running:
        shard = look.shard(number)
        if shard is None or shard.master is not None or shard.drained:
            continue
        if membership.fenced_whole(look, number):
            continue  # somebody wants nobody to lead it
        return _leaderless(look, shard)
    return None


def _leaderless(look: ClusterLook, shard: Shard) -> PlanStep:
    name, key = f"shard-{shard.id}", f"master of shard-{shard.id}"
    what = "its members to elect one" if shard.in_sync else "a member that was in sync"
    text = f"{name} has no master: it waits for {shard.waits_for or what}"
    said = ConditionFinding(
        type="Available", holds=False, reason="ShardWithoutMaster", message=text
    )
    elected = _allowed(look, shard, key)
    return PlanStep(
        row=PlanRow.FAILOVER,
        actions=(Elect(elected.name, _uuid(elected), shard.id),) if elected else (),
        wait=PlanWait(key=key, message=f"{name}: {shard.waits_for or what}", deadline_s=FAILOVER_S),
        findings=(said,),
        next="the member leads" if elected else _cure(look, shard),
    )


def _cure(look: ClusterLook, shard: Shard) -> str:
    """Return what comes next: members that were only taken away come back with all they hold."""
    found = look.observed.sets().get(shard.id)
    many = max(called_back(look, shard.id), (found.replicas or 0) if found else 0)
    loss = f"or imago.dev/allow-data-loss: '{shard.id}'"
    if many > look.desired.replicas:
        return f"members come back, up to {many}: one that left may have been in sync; {loss}"
    if found is not None and (found.replicas or 0) < look.desired.replicas:
        return f"StatefulSet {found.name} has {look.desired.replicas} replicas again"
    return loss


def _allowed(look: ClusterLook, shard: Shard, key: str) -> Pod | None:
    """Return who is to lead though messages may be lost: only if somebody said so, and late."""
    if look.desired.resource.allow_data_loss != str(shard.id) or shard.in_sync:
        return None
    progress = look.observed.status.progress
    if progress is None or progress.step != key:
        return None
    if (look.now - parsed(progress.since)).total_seconds() < FAILOVER_S:
        return None
    pods = look.observed.pods_of(shard.id)
    answering = [p for p in pods if p.broker and not (p.deleting or p.broker.fenced)]
    return max(answering, key=lambda p: p.broker.log if p.broker else (0, 0), default=None)


def _uuid(pod: Pod) -> str:
    assert pod.broker is not None
    return pod.broker.uuid
