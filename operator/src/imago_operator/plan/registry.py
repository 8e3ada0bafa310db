"""What the registry says, or does not say: no answer, a beginning, a shard without a master."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.actions import Elect
from imago_operator.plan.rows import Row, Step
from imago_operator.state import Finding, Wait, parsed

if TYPE_CHECKING:
    from imago_operator.plan.look import Look
    from imago_operator.state import Pod, Shard

BOOTSTRAP_S: Final = 600.0
REGISTRY_S: Final = 300.0
FAILOVER_S: Final = 60.0
"""After this a shard without anybody in sync may be led by another, if a person says so."""
CONNECTED: Final = "ZooKeeperConnected"


def registry(look: Look) -> Step | None:
    """Nobody answers, or nobody has ZooKeeper: nothing may be taken away."""
    found = look.observed.registry
    begun = look.observed.status.cluster_id is not None
    if found is None:
        return _silence(look) if begun else _bootstrap("a broker to answer")
    if not found.connected:
        text = f"ZooKeeper at {look.desired.zookeeper_connect}"
        said = Finding(type=CONNECTED, holds=False, reason="ZooKeeperUnavailable", message=text)
        wait = Wait(key="zookeeper", message=text, deadline_s=REGISTRY_S)
        return Step(row=Row.REGISTRY, wait=wait, findings=(said,), next="go on where it stopped")
    if look.strange:
        text = f"cluster {look.observed.status.cluster_id} instead of {found.cluster_id}"
        said = Finding(type=CONNECTED, holds=False, reason="OtherCluster", message=text)
        wait = Wait(key="strange", message=text, deadline_s=REGISTRY_S)
        return Step(row=Row.REGISTRY, wait=wait, findings=(said,), next="go on where it stopped")
    if found.cluster_id is None:
        return _bootstrap("brokers to name the cluster in the registry")
    return None


def _silence(look: Look) -> Step:
    pods = [pod for pod in look.observed.pods if pod.shard is not None]
    text = f"one of {len(pods)} brokers to answer"
    said = Finding(type=CONNECTED, holds=False, reason="NoBrokerAnswers", message=text)
    wait = Wait(key="silence", message=text, deadline_s=REGISTRY_S)
    return Step(row=Row.REGISTRY, wait=wait, findings=(said,), next="look at the shards")


def _bootstrap(what: str) -> Step:
    said = Finding(
        type="Reconciling", holds=True, reason="Bootstrapping", message=f"Waits for {what}."
    )
    wait = Wait(key="bootstrap", message=what, deadline_s=BOOTSTRAP_S)
    return Step(row=Row.BOOTSTRAP, wait=wait, findings=(said,), next="shards elect their masters")


def failover(look: Look) -> Step | None:
    """A shard has no master: its members elect one; a person may allow a loss."""
    for number in look.running:
        shard = look.shard(number)
        if shard is None or shard.master is not None or shard.drained:
            continue
        return _leaderless(look, shard)
    return None


def _leaderless(look: Look, shard: Shard) -> Step:
    name, key = f"shard-{shard.id}", f"master of shard-{shard.id}"
    what = "its members to elect one" if shard.in_sync else "a member that was in sync"
    text = f"{name} has no master: it waits for {shard.waits_for or what}"
    said = Finding(type="Available", holds=False, reason="ShardWithoutMaster", message=text)
    elected = _allowed(look, shard, key)
    return Step(
        row=Row.FAILOVER,
        actions=(Elect(elected.name, _uuid(elected), shard.id),) if elected else (),
        wait=Wait(key=key, message=f"{name}: {shard.waits_for or what}", deadline_s=FAILOVER_S),
        findings=(said,),
        next="the member leads" if elected else _cure(look, shard),
    )


def _cure(look: Look, shard: Shard) -> str:
    """Return what comes next: members that were only taken away come back with all they hold."""
    found = look.observed.sets().get(shard.id)
    if found is not None and (found.replicas or 0) < look.desired.replicas:
        return f"StatefulSet {found.name} has {look.desired.replicas} replicas again"
    return f"or imago.dev/allow-data-loss: '{shard.id}'"


def _allowed(look: Look, shard: Shard, key: str) -> Pod | None:
    """Return who is to lead though messages may be lost: only if somebody said so, and late."""
    if look.desired.resource.allow_data_loss != str(shard.id) or shard.in_sync:
        return None
    progress = look.observed.status.progress
    if progress is None or progress.step != key:
        return None
    if (look.now - parsed(progress.since)).total_seconds() < FAILOVER_S:
        return None
    answering = [p for p in look.observed.pods_of(shard.id) if p.broker and not p.deleting]
    return max(answering, key=lambda p: p.broker.log if p.broker else (0, 0), default=None)


def _uuid(pod: Pod) -> str:
    assert pod.broker is not None
    return pod.broker.uuid
