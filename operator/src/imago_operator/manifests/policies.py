"""Who may disturb the pods, and who may reach which port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_operator.manifests import zookeeper
from imago_operator.manifests.common import Manifest, child, selector
from imago_operator.manifests.services import ADMIN, REPLICATION, client_ports, ports_of
from imago_operator.model import names
from imago_operator.model.listeners import listener_ports

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired


def disruption_budget(desired: Desired, shard: int) -> Manifest:
    """Return the budget of one shard: one member at a time, and only while all are in sync.

    A pod that was started again is ready once it is in sync, so that Kubernetes itself refuses to
    evict a second member before.
    """
    return _budget(
        desired, names.stateful_set(desired.name, shard), names.BROKER, shard, "IfHealthyBudget"
    )


def zookeeper_budget(desired: Desired) -> Manifest:
    return _budget(desired, names.zookeeper(desired.name), names.ZOOKEEPER, None, "IfHealthyBudget")


def _budget(
    desired: Desired, name: str, component: str, shard: int | None, unhealthy: str
) -> Manifest:
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": unhealthy,
        "selector": {"matchLabels": selector(desired, component, shard)},
    }
    return child(
        desired, "policy/v1", "PodDisruptionBudget", name, component, {"spec": spec}, shard=shard
    )


def broker_policy(desired: Desired) -> Manifest:
    """Return who may reach brokers: clients from anywhere, members each other, the rest asked.

    Administration is open to the operator, to the cluster's own pods and to the namespace,
    where metrics are collected; it needs its token besides.
    """
    members = {"podSelector": {"matchLabels": selector(desired, names.BROKER)}}
    operator = {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": desired.operator.namespace}
        },
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": names.MANAGER}},
    }
    opened = any(way.admin for way in desired.spec.listeners)
    rules = [
        _from([], [ports_of(desired)[name] for name in _of_clients(desired)]),
        _from([members], [REPLICATION]),
        _from([] if opened else [members, operator, {"podSelector": {}}], [ADMIN]),
    ]
    return _policy(desired, names.headless(desired.name), names.BROKER, rules)


def _of_clients(desired: Desired) -> tuple[str, ...]:
    return (*client_ports(desired), *listener_ports(desired.spec))


def _from_outside(desired: Desired) -> list[dict[str, Any]]:
    """Return the networks whose MetaQ clients reach ZooKeeper by a listener."""
    ways = (way for way in desired.spec.listeners if way.metaq is not None)
    ranges = (r for way in ways if way.metaq is not None for r in way.metaq.zookeeper_source_ranges)
    return [{"ipBlock": {"cidr": network}} for network in dict.fromkeys(ranges)]


def zookeeper_policy(desired: Desired) -> Manifest:
    """Return who may reach ZooKeeper: whoever is named, or anybody, as clients of MetaQ need it.

    The port with TLS is for brokers alone.
    """
    peers = {"podSelector": {"matchLabels": selector(desired, names.ZOOKEEPER)}}
    brokers = {"podSelector": {"matchLabels": selector(desired, names.BROKER)}}
    managed, clients = desired.spec.zookeeper.managed, []
    if managed is not None and managed.allowed_peers is not None:
        clients = [brokers, *map(dict, managed.allowed_peers)]
    if outside := _from_outside(desired):
        # Without a list of peers whoever is in the Kubernetes cluster, as before.
        clients = [*(clients or [{"namespaceSelector": {}}]), *outside]
    who = {"client": clients, "client-tls": [brokers]}
    ports = zookeeper.client_ports(desired)
    rules = [_from(who[name], [port]) for name, port in ports.items()]
    rules.append(_from([peers], list(zookeeper.PEERS.values())))
    return _policy(desired, names.zookeeper(desired.name), names.ZOOKEEPER, rules)


def _policy(desired: Desired, name: str, component: str, rules: list[Manifest]) -> Manifest:
    spec = {
        "podSelector": {"matchLabels": selector(desired, component)},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    return child(desired, "networking.k8s.io/v1", "NetworkPolicy", name, component, {"spec": spec})


def _from(peers: list[dict[str, Any]], ports: list[int]) -> Manifest:
    rule: Manifest = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
    return {"from": peers} | rule if peers else rule
