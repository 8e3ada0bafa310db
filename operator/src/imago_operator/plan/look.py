"""One look at a cluster, with what follows from it at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from imago_operator.manifests.brokers import template_notes
from imago_operator.manifests.zookeeper import zookeeper_notes
from imago_operator.model import names
from imago_operator.model.state import STATEFUL_SET
from imago_operator.plan.servers import numbers
from imago_operator.spec.cluster.brokers import SHARD_ID_MAX

if TYPE_CHECKING:
    from datetime import datetime

    from imago_operator.manifests.zookeeper_members import ServerNumbers
    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Claim, Observed, Pod, Shard

RESIZE_PENDING: Final = "FileSystemResizePending"


@dataclass(frozen=True)
class ClusterLook:
    """Desired state, actual state, and time."""

    desired: Desired
    observed: Observed
    now: datetime

    @cached_property
    def existing(self) -> frozenset[int]:
        """Shards that are part of the cluster, also where objects of theirs were lost.

        Claims alone are enough: those of a cluster that was deleted are taken up again.
        """
        observed = self.observed
        known = {s.id for s in observed.status.shards if not self.empty(s.id)}
        return self.present | known | self.claimed

    @cached_property
    def present(self) -> frozenset[int]:
        """Shards that have a StatefulSet or pods."""
        pods = {pod.shard for pod in self.observed.pods if pod.shard is not None}
        return frozenset(self.observed.sets()) | pods

    @cached_property
    def claimed(self) -> frozenset[int]:
        """Shards that have claims, with something on them that somebody may need."""
        return frozenset(c.shard for c in self.observed.claims if not self.empty(c.shard))

    @cached_property
    def victims(self) -> tuple[int, ...]:
        """Shards that are to go: those begun with, those that are empty, those named, the highest.

        A shard of which only claims are left goes before one that runs.
        """
        excess = len(self.existing) - self.desired.spec.brokers.shards
        if excess <= 0:
            return ()
        begun = self.observed.status.scale_down
        recorded = sorted(begun.victims if begun else (), key=lambda n: (not self.drained(n), n))
        order = [*recorded, *filter(self.drained, sorted(self.existing))]
        order += sorted(self.claimed - self.present, reverse=True)
        order += self.desired.spec.brokers.remove_shards
        order += sorted(self.existing, reverse=True)
        chosen = [n for n in dict.fromkeys(order) if n in self.existing]
        return tuple(sorted(chosen[:excess]))

    @cached_property
    def targets(self) -> tuple[int, ...]:
        """Shards that the cluster is to have: those it keeps, and the lowest free numbers."""
        kept = [n for n in sorted(self.existing) if n not in self.victims]
        missing = self.desired.spec.brokers.shards - len(kept)
        avoided = {*self.existing, *self.desired.spec.brokers.remove_shards}
        free = (n for n in range(SHARD_ID_MAX + 1) if n not in avoided)
        return tuple(sorted([*kept, *(next(free) for _ in range(max(0, missing)))]))

    @cached_property
    def stopped(self) -> frozenset[int]:
        """Victims whose pods were taken away."""
        sets = self.observed.sets()
        still = (n for n in self.victims if n in sets and sets[n].replicas == 0)
        # One that somebody else has scaled down is still to be read out.
        return frozenset(n for n in still if self.empty(n) or not self.informed)

    @cached_property
    def sleeping(self) -> frozenset[int]:
        """Shards without pods: the cluster hibernates, or its ZooKeeper does not serve again yet.

        All of them begin at once. One that somebody has scaled down alone does not sleep.
        """
        sets = self.observed.sets()
        down = frozenset(n for n, found in sets.items() if found.replicas == 0)
        if self.desired.spec.hibernated:
            here = {pod.shard for pod in self.observed.pods}
            unmade = {*self.targets, *self.victims} - sets.keys() - here
            return down | unmade
        waking = bool(sets) and len(down) == len(sets)
        return down if waking and not self._registry_serves else frozenset()

    @cached_property
    def servers_sleep(self) -> bool:
        """Whether a managed ZooKeeper of a cluster that hibernates has no pods, or is to have none.

        Its servers stop after all brokers, once; what is made while nobody is there has none.
        """
        if not self.desired.spec.hibernated or self.desired.spec.zookeeper.managed is None:
            return False
        found = self.observed.child(STATEFUL_SET, names.zookeeper(self.desired.name))
        if found is not None:
            return found.replicas == 0
        return not self.observed.pods and not any(s.replicas for s in self.observed.sets().values())

    @property
    def _registry_serves(self) -> bool:
        serving = sum(pod.serving for pod in self.observed.pods_of(None))
        return self.servers is None or 2 * serving > self.servers.members

    @cached_property
    def servers(self) -> ServerNumbers | None:
        """How many servers a managed ZooKeeper is to have for now."""
        return numbers(self.desired, self.observed, self.outdated)

    @property
    def informed(self) -> bool:
        """Whether enough is known to take anything away."""
        registry = self.observed.registry
        known = self.observed.synced and registry is not None and registry.connected
        return known and not self.strange

    @property
    def strange(self) -> bool:
        """Whether brokers speak of another cluster than the one on record."""
        registry, recorded = self.observed.registry, self.observed.status.cluster_id
        said = registry.cluster_id if registry else None
        return None not in (said, recorded) and said != recorded

    @cached_property
    def running(self) -> tuple[int, ...]:
        """Shards whose pods are to be there."""
        gone = set(self.stopped)
        here = set(self.observed.sets())
        return tuple(sorted((set(self.targets) | set(self.victims)) & here - gone))

    def shard(self, number: int) -> Shard | None:
        registry = self.observed.registry
        return registry.shards.get(number) if registry else None

    def drained(self, number: int) -> bool:
        found = self.shard(number)
        return found is not None and found.drained

    def empty(self, number: int) -> bool:
        """Whether nobody needs the shard: it is on record as drained, or never had a member."""
        return self.drained(number) or (self.informed and self.shard(number) is None)

    def is_down(self, number: int) -> bool:
        """Whether clients find a member of the shard less, for whatever reason."""
        serving = [pod for pod in self.observed.pods_of(number) if pod.serving]
        return len(serving) < self.desired.replicas

    def has_member(self, claim: Claim) -> bool:
        """Whether a claim is of a member that its shard has, or is to have."""
        found = self.observed.sets().get(claim.shard)
        there = (found.replicas or 0) if found else 0
        return claim.ordinal < max(self.desired.replicas, there)

    def rack(self, pod: Pod) -> str:
        """Return the rack of a pod's node; empty where it is unknown."""
        nodes = self.observed.nodes or {}
        node = nodes.get(pod.node or "")
        return node.rack if node else ""

    def notes(self, shard: int | None) -> dict[str, str]:
        """Return the annotations that a pod of today's template has."""
        return self._notes.get(shard, {})

    @cached_property
    def _notes(self) -> dict[int | None, dict[str, str]]:
        found: dict[int | None, dict[str, str]] = {
            n: template_notes(self.desired, n) for n in (*self.targets, *self.victims)
        }
        found[None] = zookeeper_notes(self.desired)
        return found

    def outdated(self, pod: Pod) -> bool:
        """Whether a restart would change something about the pod."""
        wanted = self.notes(pod.shard)
        if not wanted:
            return False
        differs = pod.annotations.get(names.TEMPLATE_HASH) != wanted[names.TEMPLATE_HASH]
        return differs or pod.edited or self.ordered(pod) or self.resizing(pod)

    def ordered(self, pod: Pod) -> bool:
        """Whether somebody asked for a restart: of this pod, or of all."""
        wanted = self.notes(pod.shard).get(names.RESTART, "")
        return pod.annotations.get(names.RESTART, "") != wanted

    def resizing(self, pod: Pod) -> bool:
        """Whether the pod's volume grows at its next start."""
        claims = () if pod.shard is None else self.observed.claims_of(pod.shard)
        return any(c.ordinal == pod.ordinal and RESIZE_PENDING in c.conditions for c in claims)

    def by_operator_only(self, pod: Pod) -> bool:
        """Whether nothing that the user said differs: the operator's own template does."""
        same = pod.annotations.get(names.SPEC_HASH) == self.notes(pod.shard).get(names.SPEC_HASH)
        return same and not (pod.edited or self.ordered(pod) or self.resizing(pod))
