"""A cluster that hibernates: no pods, all claims.

Brokers stop first, all members of all shards at once: each closes its log, and what was
acknowledged is on every member that the registry has in sync, whichever of them stopped last.
ZooKeeper, which knows who they are, stops when no broker is left. It begins again before any of
them; then all members of all shards begin at once, so that those with the most of each log are
there to be elected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.manifests.brokers import stateful_set
from imago_operator.manifests.zookeeper import zookeeper_set
from imago_operator.model import names
from imago_operator.model.actions import Hibernate
from imago_operator.model.state import STATEFUL_SET, ConditionFinding, PlanWait
from imago_operator.plan.rows import PlanRow, PlanStep

if TYPE_CHECKING:
    from imago_operator.model.state import Pod
    from imago_operator.plan.look import ClusterLook

CONDITION: Final = "Hibernated"
STOP_S: Final = 600.0
WAKE_S: Final = 600.0


def sleep(look: ClusterLook) -> PlanStep:
    """Stop brokers, then ZooKeeper; say that all of them sleep."""
    sets = look.observed.sets()
    awake = [number for number in sorted(sets) if sets[number].replicas]
    if awake:
        if not (look.informed or look.servers_sleep):
            return _waits("a broker with ZooKeeper to answer", "all brokers stop")
        stops = tuple(Hibernate(stateful_set(look.desired, n, replicas=0), n) for n in awake)
        return PlanStep(
            row=PlanRow.HIBERNATING,
            actions=stops,
            findings=(_said("Stopping", f"{_shards(awake)} stops."),),
            next="ZooKeeper stops",
        )
    brokers = [pod for pod in look.observed.pods if pod.shard is not None]
    if brokers:
        return _waits(f"{_pods(brokers)} to stop", "ZooKeeper stops")
    managed = look.desired.spec.zookeeper.managed
    found = look.observed.child(STATEFUL_SET, names.zookeeper(look.desired.name))
    if managed is not None and found is not None and found.replicas:
        return PlanStep(
            row=PlanRow.HIBERNATING,
            actions=(Hibernate(zookeeper_set(look.desired, managed, replicas=0)),),
            findings=(_said("Stopping", "ZooKeeper stops."),),
            next="all of it sleeps",
        )
    if left := look.observed.pods_of(None):
        return _waits(f"{_pods(left)} to stop", "all of it sleeps")
    text = "No pod of it runs; its claims are kept. `spec.hibernated: false` wakes it."
    return PlanStep(
        row=PlanRow.HIBERNATING,
        findings=(_said("Asleep", text),),
        next="spec.hibernated is false: ZooKeeper starts, then all brokers",
    )


def wake(look: ClusterLook) -> PlanStep | None:
    """Wait until ZooKeeper serves again; None: brokers do not sleep."""
    if not look.sleeping:
        return None
    wait = PlanWait(key="wake", message="a majority of ZooKeeper to serve", deadline_s=WAKE_S)
    return PlanStep(row=PlanRow.HIBERNATING, wait=wait, next="all brokers start")


def _waits(what: str, after: str) -> PlanStep:
    return PlanStep(
        row=PlanRow.HIBERNATING,
        wait=PlanWait(key="hibernate", message=what, deadline_s=STOP_S),
        findings=(_said("Stopping", f"It waits for {what}."),),
        next=after,
    )


def _said(reason: str, message: str) -> ConditionFinding:
    return ConditionFinding(type=CONDITION, holds=True, reason=reason, message=message)


def _shards(numbers: list[int]) -> str:
    return ", ".join(f"shard-{number}" for number in numbers)


def _pods(pods: list[Pod] | tuple[Pod, ...]) -> str:
    return ", ".join(pod.name for pod in pods[:8])
