"""What there is in a modelled cluster, and what an operator sees of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from imago_operator.manifests.environment import is_over_tls, registry_access_of
from imago_operator.manifests.zookeeper import quorum_of_servers, tls_of_servers
from imago_operator.observed import has_user
from imago_operator.spec.cluster_status import ClusterStatus
from imago_operator.spec.zookeeper import RegistryAccess
from imago_operator.state import (
    Claim,
    KubeNode,
    Observed,
    OwnedObject,
    Pod,
    Probe,
    RegistryView,
    RemainingContent,
    RestartCheck,
    Shard,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.actions import (
        Action,
    )
    from imago_operator.desired import Desired, UnreadableSpec

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RACKS = ("east", "west", "north")


@dataclass
class Disk:
    """What stands on a claim: who the broker is."""

    uuid: str
    log: int = 0


def meeting(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return how pods of a template meet at ZooKeeper, as fields of them."""
    return {
        "registry_access": registry_access_of(template),
        "registry_over_tls": is_over_tls(template),
        "registry_tls": tls_of_servers(template),
        "quorum_tls": quorum_of_servers(template),
    }


@dataclass
class Things:
    """What there is: objects of one cluster, and the brokers in its pods."""

    desired: Desired | UnreadableSpec
    now: datetime = START
    status: ClusterStatus = field(default_factory=ClusterStatus)
    children: dict[tuple[str, str], OwnedObject] = field(default_factory=dict)
    manifests: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    nodes: dict[str, KubeNode] = field(
        default_factory=lambda: {
            f"node-{n}": KubeNode(name=f"node-{n}", rack=r) for n, r in enumerate(RACKS)
        }
    )
    shards: dict[int, Shard] = field(default_factory=dict)
    config: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings of running brokers that may change, by pod uid."""
    replication: dict[str, str] = field(default_factory=dict)
    """How running brokers copy the log: disabled, permissive or enforcing TLS, by pod uid."""
    registry_user: bool = False
    """Whether there is a Secret of the brokers' user in ZooKeeper."""
    nodes_closed: bool = False
    """Whether ZooKeeper lets only that user change the brokers' nodes."""
    secret_refused: bool = False
    """Whether the operator may not read the Secret of that user."""
    broken_images: set[str] = field(default_factory=set)
    zookeeper: bool = True
    expandable: dict[str, bool] = field(default_factory=lambda: {"": True})
    unread: int = 3
    """Messages that a shard still has once it is closed; one look reads one of them."""
    done: list[Action] = field(default_factory=list)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    grace: int = 0
    """Turns for which a deleted pod still serves."""
    behind: int = 0
    """Turns until a member that has begun is in sync."""
    absence: int = 0
    """Turns for which a pod that has gone is not on the list, until another is made."""
    unready: int = 0
    """Turns until a pod is ready once nothing is in its way."""
    full: set[str] = field(default_factory=set)
    """Pods whose disk is full: they answer and are in sync, but not ready."""
    silent: set[str] = field(default_factory=set)
    """Pods that serve, but do not answer the operator."""
    hurt: dict[str, str] = field(default_factory=dict)
    """Members in sync that the operator took away, with the uid of then, until they are back."""
    _turns: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def connected(self) -> bool:
        """Whether brokers have the registry."""
        return self.zookeeper

    def uid(self, what: str) -> str:
        return f"{what}-{next(self.ids)}"

    # ---- what the operator sees ------------------------------------------------------------

    def observe(self) -> Observed:
        answers = any(pod.broker and pod.name not in self.silent for pod in self.pods.values())
        registry = RegistryView(
            cluster_id="c-1" if self.shards else None,
            connected=self.connected,
            shards=dict(self.shards),
        )
        pods = tuple(replace(pod, broker=self._probe(pod)) for pod in self.pods.values())
        closed = [n for n, shard in self.shards.items() if shard.cordoned]
        left = {n: RemainingContent(writable_queues=0, unread_messages=self.unread) for n in closed}
        asked = getattr(self.desired, "registry_access", RegistryAccess.NONE)
        asks = asked is not RegistryAccess.NONE
        needs = asks or any(map(has_user, self.children.values()))
        return Observed(
            synced=True,
            children=tuple(self.children.values()),
            pods=pods,
            claims=tuple(self.claims.values()),
            nodes=dict(self.nodes),
            expandable=dict(self.expandable),
            registry=registry if answers else None,
            registry_user=self.registry_user if needs and not self.secret_refused else None,
            registry_user_refused=asks and self.secret_refused,
            remaining=left if self._draining() else {},
            status=self.status,
        )

    def _draining(self) -> bool:
        return any(kind == "ImagoRebalance" for kind, _ in self.children)

    def _probe(self, pod: Pod) -> Probe | None:
        if pod.broker is None or pod.shard is None or pod.name in self.silent:
            return None
        shard = self.shards.get(pod.shard)
        others = shard.in_sync - {pod.broker.uuid} if shard else frozenset()
        risks = [] if others else ["noMasterAfter", "singleReplica"]
        if len(others) < self._least():
            risks.append("belowMinInSync")
        return replace(
            pod.broker,
            config=dict(self.config.get(pod.uid, {})),
            caught_up=self.in_sync(pod),
            restart=RestartCheck(safe=not risks, risks=tuple(risks)),
        )

    def lets_in(self, pod: Pod) -> bool:
        """Whether ZooKeeper lets a broker that starts have the cluster's nodes."""
        if pod.registry_access is RegistryAccess.NONE:
            assert not self.nodes_closed, f"{pod.name} is shut out of ZooKeeper"
        elif not self.registry_user:
            return False  # its pod waits for the Secret
        if pod.registry_access is RegistryAccess.ENFORCING:
            others = [p for p in self.pods.values() if p.broker is not None]
            without = [p.name for p in others if p.registry_access is RegistryAccess.NONE]
            assert not without, f"{pod.name} shuts {without} out of ZooKeeper"
        self.nodes_closed = pod.registry_access is RegistryAccess.ENFORCING
        return True

    def in_sync(self, pod: Pod) -> bool:
        shard = None if pod.shard is None else self.shards.get(pod.shard)
        return bool(pod.broker and shard and pod.broker.uuid in shard.in_sync)

    def _least(self) -> int:
        return getattr(self.desired, "min_in_sync", 1)
