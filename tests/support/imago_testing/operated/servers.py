"""Nodes that are drained and lose power, and ZooKeeper's servers on them: who has a majority."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from imago_operator.manifests.config import FILE
from imago_operator.manifests.zookeeper_members import FOUNDERS, MEMBERS
from imago_operator.model import names
from imago_operator.model.state import STATEFUL_SET
from imago_operator.plan.members.counting import LEAST
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryTls
from imago_testing.operated.things import RACKS, Things, number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_operator.model.state import Pod

HOMELESS = "Unschedulable"
FILELESS = "ContainerCreating"
SENDS_TLS = frozenset({QuorumTls.SENDING, QuorumTls.ENFORCING})
ACCEPTS_TLS = frozenset(QuorumTls) - {QuorumTls.NONE}
ACCEPTS_PLAIN = frozenset(QuorumTls) - {QuorumTls.ENFORCING}


def meet(one: QuorumTls, other: QuorumTls) -> bool:
    """Whether two servers of ZooKeeper have a connection, whoever of them opens it."""
    ways = ((one, other), (other, one))
    return all(to in (ACCEPTS_TLS if by in SENDS_TLS else ACCEPTS_PLAIN) for by, to in ways)


def has_quorum(there: Sequence[QuorumTls], servers: int) -> bool:
    """Whether a majority of that many servers is there, each of which meets each other."""
    parts = combinations(there, servers // 2 + 1)
    return any(all(meet(*pair) for pair in combinations(part, 2)) for part in parts)


@dataclass
class Servers(Things):
    """Where pods are, and whether those of ZooKeeper make a registry."""

    joined: set[str] = field(default_factory=set)
    """Servers of ZooKeeper, by uid, that have what the others have."""
    ensemble: set[int] = field(default_factory=set)
    """Ordinals of those servers that are members; empty: it has not begun."""
    dark: set[str] = field(default_factory=set)
    """Nodes without power."""
    missed: dict[str, str] = field(default_factory=dict)
    """Servers that the operator took from a majority, with the uid of then, until they are back."""

    @property
    def connected(self) -> bool:
        """Whether brokers have the registry: ZooKeeper answers, and a majority of it is there."""
        wanted = self._servers_wanted()
        there = [pod for pod in self._servers() if self._takes_part(pod)]
        many = len(self.ensemble) or wanted or 0
        quorum = has_quorum([pod.quorum_tls for pod in there], many)
        return self.zookeeper and (wanted is None or quorum)

    def runs(self, pod: Pod) -> bool:
        return pod.node is not None and not pod.waiting and pod.node not in self.dark

    def _servers(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.shard is None]

    def _servers_wanted(self) -> int | None:
        """Return how many servers of ZooKeeper there are to be; None: there is no set of them."""
        found = (c for (kind, _), c in self.children.items() if kind == STATEFUL_SET)
        return next((c.replicas or 0 for c in found if c.shard is None), None)

    def _takes_part(self, pod: Pod) -> bool:
        member = pod.ordinal in self.ensemble or not self.ensemble
        return self.runs(pod) and pod.uid in self.joined and member

    def reconfigure(self) -> None:
        """Have the server that leads take one in, or do without the last, as all are told."""
        file = self.manifests.get(("ConfigMap", f"{names.zookeeper('demo')}-config"))
        if file is None:
            return
        members, founders = (int(file["data"][name]) for name in (MEMBERS, FOUNDERS))
        if not self.ensemble:
            self.ensemble = set(range(founders))
        elif self.connected and max(self.ensemble) >= members:
            self.ensemble.remove(max(self.ensemble))
        elif self.connected:
            ready = {p.ordinal for p in self._servers() if self.runs(p) and p.uid in self.joined}
            self.ensemble |= set(sorted(ready & set(range(members)) - self.ensemble)[:1])

    def _note_server(self, pod: Pod) -> None:
        """Count what the operator takes of ZooKeeper, whatever it may remember of it."""
        if self._takes_part(pod):
            self.missed[pod.name] = pod.uid
        assert len(self.missed) <= 1, f"several servers of ZooKeeper: {sorted(self.missed)}"

    def check_ports(self) -> None:
        """Raise AssertionError if a broker has no port at one of ZooKeeper's servers."""
        brokers = [pod for pod in self.pods.values() if pod.shard is not None]
        for broker, server in product(brokers, self._servers()):
            lacked = RegistryTls.NONE if broker.registry_over_tls else RegistryTls.ENFORCING
            said = f"{server.name}, {server.registry_tls}, has no port for {broker.name}"
            assert server.registry_tls is not lacked, said

    def check_quorum(self) -> None:
        """Raise AssertionError if two of ZooKeeper's servers do not understand each other."""
        for one, other in combinations(self._servers(), 2):
            said = f"{one.name}, {one.quorum_tls}, and {other.name}, {other.quorum_tls}"
            assert meet(one.quorum_tls, other.quorum_tls), said

    def check_fewer(self, key: tuple[str, str], manifest: Mapping[str, Any]) -> None:
        """Raise AssertionError if a shard that serves loses its leader, or too many members."""
        number, fewer = number_of(manifest), manifest.get("spec", {}).get("replicas")
        shard = None if number is None else self.shards.get(number)
        before = self.children[key].replicas if key in self.children else None
        if key[0] != STATEFUL_SET or shard is None or shard.master is None or not fewer:
            return
        if fewer >= (before or 0):
            return
        stay = {p.name: p for p in self.pods.values() if p.shard == number and p.ordinal < fewer}
        leads = [p for p in stay.values() if p.broker and p.broker.uuid == shard.master]
        assert leads, f"shard-{number} loses its leader"
        synced = sum(self.in_sync(pod) for pod in stay.values())
        least = self.told(leads[0])[LEAST]
        assert synced >= least or len(shard.in_sync) < least, f"shard-{number}: puts refused"

    def _forgive_servers(self) -> None:
        for name, uid in list(self.missed.items()):
            pod = self.pods.get(name)
            if pod is not None and pod.uid != uid and self._takes_part(pod):
                del self.missed[name]

    # ---- where pods come to be -------------------------------------------------------------

    def _place(self, pod: Pod) -> str | None:
        """Return the node that takes a pod; None: no node does."""
        claim = self.claims.get(f"data-{pod.name}")
        if claim and claim.node:
            return claim.node if claim.node in self.nodes else None
        if pod.shard is None:
            return self._for_server()
        usual = (f"node-{(pod.ordinal + n) % len(RACKS)}" for n in range(len(RACKS)))
        return next((name for name in usual if self._takes(name)), None)

    def _takes(self, node: str) -> bool:
        return node in self.nodes and self.nodes[node].open and node not in self.dark

    def _for_server(self) -> str | None:
        """Return an open node with the fewest servers, as their spread constraint asks for."""
        count = Counter(pod.node for pod in self._servers())
        return min(filter(self._takes, self.nodes), key=lambda name: count[name], default=None)

    def _read(self, pod: Pod) -> Pod:
        """Return a pod whose broker begins: it reads the file that its pod names, as that is now.

        Without it no container is made; with a line in it that brokers refuse they end at once.
        """
        found = self.manifests.get(("ConfigMap", pod.config))
        if found is None:
            return replace(pod, waiting=FILELESS)
        wrong = [line for line in found["data"][FILE].splitlines() if line in self.refused]
        if not wrong:
            return pod
        self.misled.add(pod.name)
        words = f"broker ended with code 2: {wrong[0]}"
        return replace(pod, waiting="CrashLoopBackOff", failure=words)

    # ---- faults ----------------------------------------------------------------------------

    def cordon(self, node: str, *, open_again: bool = False) -> None:
        if node in self.nodes:
            self.nodes[node] = replace(self.nodes[node], open=open_again)

    def drain(self, node: str) -> None:
        """Close a node, and evict those of its pods that their budgets let go."""
        self.cordon(node)
        for pod in [p for p in self.pods.values() if p.node == node]:
            fellows = [p for p in self.pods.values() if p.shard == pod.shard and p.uid != pod.uid]
            if len(fellows) + 1 >= self._size_of(pod) and all(p.serving for p in fellows):
                self._vanish(pod.name)

    def kill(self, name: str) -> None:
        """Take a pod away, as a user or a node's end does."""
        if name in self.pods:
            self._vanish(name)

    def crash(self, name: str) -> None:
        """The broker in a pod ends, and ends again whenever it is started."""
        pod = self.pods.get(name)
        if pod is not None and not pod.deleting:
            self._depart(pod)
            self.joined.discard(pod.uid)
            ill = replace(pod, broker=None, ready=False, turned=self.now)
            self.pods[name] = replace(ill, waiting="CrashLoopBackOff")

    def reboot(self, name: str) -> None:
        """The broker in a pod ends, and its container is started again: an error, a node."""
        pod = self.pods.get(name)
        if pod is not None and not pod.deleting and not pod.waiting:
            self._depart(pod)
            self.pods[name] = replace(pod, broker=None, ready=False, turned=self.now)

    def cut_power(self, node: str) -> None:
        """A node is off: its pods stay on the list, and none of them answers."""
        self.dark.add(node)
        for pod in [p for p in self.pods.values() if p.node == node]:
            self._depart(pod)
            self.joined.discard(pod.uid)
            self.pods[pod.name] = replace(pod, broker=None, ready=False, turned=self.now)

    def scale(self, number: int, replicas: int) -> None:
        """Somebody scales a shard's StatefulSet, who knows nothing of the operator."""
        key = STATEFUL_SET, names.stateful_set("demo", number)
        if key not in self.children:
            return
        manifest = self.manifests[key]
        spec = {**manifest["spec"], "replicas": replicas}
        self.manifests[key] = {**manifest, "spec": spec}
        ours: dict[str, Any] = {f"f:{name}": {} for name in spec if name != "replicas"}
        managed = ((names.MANAGER, {"f:metadata": {}, "f:spec": ours}),)
        self.children[key] = replace(
            self.children[key], replicas=replicas, managed=managed, live=self.manifests[key]
        )

    def lose_node(self, name: str) -> None:
        """A node goes for good, with the volumes that are on it."""
        self.nodes.pop(name, None)
        for pod in [p for p in self.pods.values() if p.node == name]:
            self._vanish(pod.name)

    def _size_of(self, pod: Pod) -> int:
        name = names.zookeeper("demo")
        if pod.shard is not None:
            name = names.stateful_set("demo", pod.shard)
        child = self.children.get((STATEFUL_SET, name))
        return (child.replicas or 0) if child else 0

    def _vanish(self, name: str) -> None:
        self._depart(self.pods.pop(name))

    def _depart(self, pod: Pod) -> None:
        """Have the registry forget a broker whose pod goes."""
        if pod.shard is None or pod.broker is None:
            return
        shard, uuid = self.shards[pod.shard], pod.broker.uuid
        members = tuple(m for m in shard.members if m.uuid != uuid)
        if shard.drained:
            self.holders.pop(shard.id, None)  # there is nothing that anybody needs
        elif uuid in shard.in_sync:
            self.holders[shard.id] = (shard.in_sync - {uuid}) or frozenset({uuid})
        master = None if shard.master == uuid else shard.master
        self.shards[pod.shard] = replace(shard, members=members, master=master)
