"""Servers of ZooKeeper that came to be on one node: a node that has a majority ends the cluster.

Kubernetes puts them apart when it places them, and moves none afterwards: a drain of a node leaves
two on another for good. One is restarted when a node without any is free again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from imago_operator.model.actions import DeletePod
from imago_operator.model.state import ConditionFinding, parsed, written
from imago_operator.plan import membership
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.cluster.cluster_status import ZooKeeperMove

if TYPE_CHECKING:
    from imago_operator.model.state import KubeNode, Pod
    from imago_operator.plan.look import ClusterLook

AGAIN_S: Final = 3600.0
"""A server that came back to the same node is left there for so long: that node alone takes it."""


def spread(look: ClusterLook) -> PlanStep | None:
    """Restart a server of a node that has a majority, so that it gets to a free one."""
    managed = look.desired.spec.zookeeper.managed
    servers = look.observed.pods_of(None)
    if managed is None or look.servers is None or look.servers.there < 3:
        return None
    crowd = _crowded(servers)
    whole = all(pod.serving for pod in servers) and len(servers) >= look.servers.there
    moved = look.observed.status.zookeeper_move
    if crowd is None:
        return _arrived() if moved is not None and whole else None
    if moved is not None and (look.now - parsed(moved.at)).total_seconds() < AGAIN_S:
        return _said(crowd, "no free node took one: their volumes or resources keep them there")
    free = [node.name for node in _free(look, servers)]
    if not free:
        return _said(crowd, "no other node is free")
    if not whole:
        return _said(crowd, "a server is not ready")
    pod = crowd[-1]
    record = ZooKeeperMove(pod=pod.name, node=pod.node or "", at=written(look.now))
    if not look.informed or any(membership.lacks(look, number) for number in look.running):
        return _said(crowd, "members of a shard are missing")
    return PlanStep(
        row=PlanRow.SERVERS,
        actions=(DeletePod(pod.name, pod.uid, None, f"{free[0]} is free, {pod.node} has several"),),
        record={"zookeeper_move": record},
        findings=(
            ConditionFinding(
                type="Reconciling",
                holds=True,
                reason="ChangingServers",
                message=f"{pod.name} goes to a node of its own: {free[0]} is free.",
            ),
        ),
        next="it runs on another node",
    )


def _arrived() -> PlanStep:
    """Forget a move that came to its end: the next crowd is another one."""
    return PlanStep(
        row=PlanRow.SERVERS,
        record={"zookeeper_move": None},
        next="look again when something changes",
    )


def _crowded(servers: tuple[Pod, ...]) -> list[Pod] | None:
    """Return the servers of the node that has a majority of them; None: no node has."""
    counts = Counter(pod.node for pod in servers if pod.node is not None)
    for node, count in counts.items():
        if count > len(servers) // 2 and count > 1:
            return [pod for pod in servers if pod.node == node]
    return None


def _free(look: ClusterLook, servers: tuple[Pod, ...]) -> list[KubeNode]:
    """Return nodes that have no server and would take one, as far as can be known."""
    taken = {pod.node for pod in servers}
    managed = look.desired.spec.zookeeper.managed
    wanted = managed.template.node_selector if managed else {}
    return [
        node
        for node in (look.observed.nodes or {}).values()
        if node.open and node.name not in taken and wanted.items() <= node.labels.items()
    ]


def _said(crowd: list[Pod], why: str) -> PlanStep:
    names = ", ".join(pod.name for pod in crowd)
    text = f"{crowd[0].node} has a majority of ZooKeeper ({names}), and {why}."
    return PlanStep(
        row=PlanRow.SERVERS,
        findings=(
            ConditionFinding(
                type="Degraded", holds=True, reason="ZooKeeperOnOneNode", message=text
            ),
        ),
    )
