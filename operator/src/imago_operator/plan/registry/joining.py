"""What is said while ZooKeeper gets more servers, or fewer; `plan.servers` decides how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.model.state import ConditionFinding, PlanWait
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.plan.servers import obstacle

if TYPE_CHECKING:
    from imago_operator.plan.look import ClusterLook

JOIN_S: Final = 600.0


def change(look: ClusterLook) -> PlanStep | None:
    """Say what the next server waits for that joins or leaves."""
    managed, now = look.desired.spec.zookeeper.managed, look.servers
    if managed is None or now is None:
        return None
    if (now.there, now.members, now.founders) == (managed.replicas,) * 3:
        return None
    text = obstacle(look.desired, look.observed, look.outdated, now) or "servers to be told"
    said = ConditionFinding(
        type="Reconciling",
        holds=True,
        reason="ChangingServers",
        message=f"ZooKeeper has {now.there} servers of {managed.replicas}; it waits for {text}.",
    )
    return PlanStep(
        row=PlanRow.SERVERS,
        wait=PlanWait(key=f"servers {text}", message=text, deadline_s=JOIN_S),
        findings=(said,),
        next="the next server joins" if managed.replicas > now.there else "the next server leaves",
    )
