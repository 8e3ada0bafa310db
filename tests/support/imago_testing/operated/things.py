"""What there is in a modelled cluster, and what an operator sees of it."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from imago_broker.core import restart
from imago_broker.model.registry.cluster import BrokerRecord, ClusterView, Role
from imago_broker.model.registry.shard import Member, ShardState
from imago_broker.model.registry.shard_status import FollowerStatus, LocalShardStatus
from imago_operator.broker_rules.keys import KEYS
from imago_operator.manifests.config import FILE
from imago_operator.manifests.environment import is_over_tls, registry_access_of
from imago_operator.manifests.zookeeper import quorum_of_servers, tls_of_servers
from imago_operator.model import names
from imago_operator.model.state import (
    Claim,
    KubeNode,
    Observed,
    OwnedObject,
    Pod,
    Probe,
    Refusal,
    RegistryView,
    RemainingContent,
    RestartCheck,
    Shard,
)
from imago_operator.observing.observed import has_user
from imago_operator.plan.members.counting import LEAST, MEMBERS, OPEN
from imago_operator.spec.cluster.cluster_status import ClusterStatus
from imago_operator.spec.cluster.zookeeper import RegistryAccess
from imago_testing.operated.resources import told_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.model.actions import (
        Action,
    )
    from imago_operator.model.desired import Desired, UnreadableSpec

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RACKS = ("east", "west", "north")


@dataclass
class Disk:
    """What stands on a claim: who the broker is."""

    uuid: str
    log: int = 0


LOG_END = 1000
"""Of every member's log, in bytes: a broker that has served is never empty."""


@lru_cache(maxsize=4096)
def risks_of(shard: Shard | None, uuid: str, least: int, replicas: int) -> tuple[str, ...]:
    """Return what a broker itself says against its restart, members in sync having all it has."""
    if shard is None:
        return ()
    members = sorted(shard.members, key=lambda one: one.uuid)
    view = ClusterView(
        cluster="demo",
        brokers=tuple(_record(shard, one.uuid) for one in members),
        states={
            shard.id: ShardState(
                leader=None if shard.master is None else Member(shard.master, 1),
                epoch=shard.epoch or 0,
                in_sync=tuple(Member(one.uuid, 1) for one in members if one.in_sync),
            )
        },
    )
    followers = tuple(
        FollowerStatus(
            uuid=one.uuid,
            incarnation=1,
            connected=True,
            end=LOG_END if one.in_sync else 0,
            durable=0,
            lag_bytes=0,
            lag_ms=0,
        )
        for one in members
        if one.uuid != uuid
    )
    role = Role.MASTER if shard.master == uuid else Role.SLAVE
    status = LocalShardStatus(role=role, epoch=1, settled=True, followers=followers)
    own = _record(shard, uuid)
    found = restart.risks(view, own, status, log_end=LOG_END, least=least, replicas=replicas)
    # As brokers of earlier versions answer, which an upgrade has to get past.
    alone = role is Role.MASTER and not followers
    return tuple(dict.fromkeys((*found.risks, *(("unreplicatedBytes",) if alone else ()))))


def _record(shard: Shard, uuid: str) -> BrokerRecord:
    return BrokerRecord(
        shard=shard.id,
        uuid=uuid,
        host="h",
        broker_name=f"shard-{shard.id}",
        incarnation=1,
        metaq=1,
        rocketmq=1,
        fast=1,
        replication=1,
        admin=1,
    )


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
    wrong: bool = False
    """Whether the spec has been edited to one that the operator refuses."""
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
    holders: dict[int, frozenset[str]] = field(default_factory=dict)
    """Who has everything of a shard that nobody leads, by uuid: no other member may lead it."""
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
    refused: set[str] = field(default_factory=set)
    """Lines of the brokers' file with which no broker starts."""
    zookeeper: bool = True
    expandable: dict[str, bool] = field(default_factory=lambda: {"": True})
    storage_classes: frozenset[str] | None = None
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
    opened: set[str] = field(default_factory=set)
    """Pods, by uid, whose broker has its port open to other members."""
    silent: set[str] = field(default_factory=set)
    """Pods that serve, but do not answer the operator."""
    misled: set[str] = field(default_factory=set)
    """Pods that have ever ended because of their file."""
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
            storage_classes=self.storage_classes,
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
        told = self.told(pod)
        risks = risks_of(shard, pod.broker.uuid, told[LEAST], told[MEMBERS])
        return replace(
            pod.broker,
            role="master" if shard and shard.master == pod.broker.uuid else pod.broker.role,
            puts=Refusal(self.refuses_puts(pod)),
            gets=Refusal(""),
            config=dict(self.config.get(pod.uid, {})),
            caught_up=self.in_sync(pod),
            restart=RestartCheck(safe=not risks, risks=risks),
        )

    def refuses_puts(self, pod: Pod) -> str:
        """Return why the shard takes no messages, as far as the broker in a pod knows."""
        assert pod.broker is not None
        assert pod.shard is not None
        shard = self.shards.get(pod.shard)
        if shard is None or shard.master is None:
            return "the shard has no master"
        if not self.connected:
            return "the registry is lost"  # a lease is over in seconds
        if pod.name in self.full:
            return "the disk is full"
        few = len(shard.in_sync) < self.told(pod)[LEAST]
        return "too few members are in sync" if few and shard.master == pod.broker.uuid else ""

    def unserved(self) -> set[int]:
        """Return the shards whose clients can put nothing now, whatever anybody says."""
        found = set()
        for number, shard in self.shards.items():
            leads = [p for p in self.pods.values() if p.broker and p.broker.uuid == shard.master]
            if not leads or self.refuses_puts(leads[0]):
                found.add(number)
        return found

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

    def is_joined(self, pod: Pod, shard: Shard) -> bool:
        """Whether others may copy from who leads: it counts on several, or has opened its port."""
        leading = [p for p in self.pods.values() if p.broker and p.broker.uuid == shard.master]
        for one in leading:
            if self.told(one)[MEMBERS] > 1 or self.told(one).get(OPEN):
                self.opened.add(one.uid)
        return not leading or leading[0].uid in self.opened or leading[0].uid == pod.uid

    def told(self, pod: Pod) -> dict[str, Any]:
        """Return the settings of a running broker that may change, as they are now."""
        return self.config[pod.uid]

    def read(self, pod: Pod) -> dict[str, Any]:
        """Return what a broker that begins reads of the file that its pod names."""
        text = self.manifests["ConfigMap", pod.config]["data"][FILE]
        said = {
            f"{section}.{name}": tuple(value) if isinstance(value, list) else value
            for section, part in tomllib.loads(text).items()
            for name, value in part.items()
        }
        return {n: said.get(n, key.default) for n, key in KEYS.items() if key.dynamic}


def number_of(manifest: Mapping[str, Any]) -> int | None:
    said = manifest["metadata"].get("labels", {}).get(names.SHARD_LABEL)
    return None if said is None else int(said)


def replication_of(template: Mapping[str, Any]) -> str:
    """Return how brokers of this template copy the log from each other."""
    return told_of(template).get("IMAGO__TLS__REPLICATION", "disabled")
