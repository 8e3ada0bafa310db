"""Where clients outside of the Kubernetes cluster find its name service and its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.manifests.services import (
    ADMIN,
    ADMIN_OFFSET,
    ENDPOINTS_OFFSET,
    NAME_SERVICE,
    NAME_SERVICE_OFFSET,
    PORTS,
    SDKS,
    ZOOKEEPER_OFFSET,
    broker_ports,
    opens_zookeeper,
    outside_name,
    told_port,
)
from imago_operator.model import names
from imago_operator.model.desired import ZOOKEEPER_PORT
from imago_operator.model.listeners import is_learnt, lets_sdks_in, serves_sdks
from imago_operator.model.outside import balancer, told_host
from imago_operator.spec.cluster.cluster_status import BrokerAddress, ListenerStatus
from imago_operator.spec.cluster.listeners import ListenerType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.model.state import Pod
    from imago_operator.plan.look import ClusterLook
    from imago_operator.spec.cluster.listeners import ExternalListener

BROKERS_MAX: Final = 256
"""Listed of each listener: a status has its size."""
BOOTSTRAP_MAX: Final = 3
"""Nodes at which clients may ask first: each serves all, and clients try one after the other."""


def listeners(look: ClusterLook) -> tuple[ListenerStatus, ...]:
    """Return the ways in that a cluster has now."""
    return tuple(_listener(look, listener) for listener in look.desired.spec.listeners)


def _listener(look: ClusterLook, listener: ExternalListener) -> ListenerStatus:
    desired = look.desired
    if listener.type is ListenerType.INTERNAL:
        return _inside(look, listener)
    pods = [pod for n in look.running for pod in look.observed.pods_of(n)]
    bootstrap = names.bootstrap(desired.name)
    first, of_sdks = listener.first_node_port, listener.first_grpc_node_port
    endpoints, servers = None, None
    if first is not None:
        # Its ports are open on every node; the broker's name leads to one, and is certified.
        told = [host for pod in pods if (host := _told(look, listener, pod))]
        host = listener.bootstrap_host or next(iter(told), "")
        asked = _at(host, first + NAME_SERVICE_OFFSET)
        several = [listener.bootstrap_host] if listener.bootstrap_host else dict.fromkeys(told)
        hosts = list(several)[:BOOTSTRAP_MAX]
        servers = ";".join(f"{each}:{first + NAME_SERVICE_OFFSET}" for each in hosts) or None
        endpoints = None if of_sdks is None else _at(host, of_sdks + ENDPOINTS_OFFSET)
        admin = _at(host, first + ADMIN_OFFSET)
    else:
        host = listener.bootstrap_host or balancer(look.observed, outside_name(bootstrap, listener))
        asked, endpoints = _at(host, NAME_SERVICE), _at(host, SDKS)
        servers, admin = asked, _at(host, ADMIN)
    return ListenerStatus(
        name=listener.name,
        bootstrap=asked,
        bootstrap_servers=servers,
        grpc=endpoints if lets_sdks_in(desired.spec, listener) else None,
        zookeeper=_registry(look, listener, host) if opens_zookeeper(desired, listener) else None,
        admin=admin if listener.admin else None,
        brokers=tuple(_brokers(look, listener, pods[:BROKERS_MAX])),
    )


def _inside(look: ClusterLook, listener: ExternalListener) -> ListenerStatus:
    """Return how clients inside come in: by the Services that every cluster has."""
    desired = look.desired
    host = f"{names.bootstrap(desired.name)}.{desired.namespace}.svc"
    asked = _at(host, NAME_SERVICE)
    sdks = _at(host, SDKS) if serves_sdks(desired.spec) else None
    return ListenerStatus(name=listener.name, bootstrap=asked, bootstrap_servers=asked, grpc=sdks)


def _registry(look: ClusterLook, listener: ExternalListener, host: str) -> str | None:
    """Return where a listener's clients find ZooKeeper."""
    first = listener.first_node_port
    if first is None:
        service = outside_name(names.zookeeper(look.desired.name), listener)
        return _at(balancer(look.observed, service), ZOOKEEPER_PORT)
    if listener.metaq is None:
        return _at(host, first + ZOOKEEPER_OFFSET)
    # Only where a server of it runs: so the server sees who calls.
    hosts = dict.fromkeys(pod.host for pod in look.observed.pods if pod.shard is None and pod.host)
    return ",".join(f"{each}:{first + ZOOKEEPER_OFFSET}" for each in hosts) or None


def _brokers(
    look: ClusterLook, listener: ExternalListener, pods: list[Pod]
) -> Iterator[BrokerAddress]:
    ports = broker_ports(look.desired, listener)
    for pod in pods:
        host = _told(look, listener, pod)
        if not host or pod.shard is None:
            continue
        at = {name: f"{host}:{_port(listener, pod, name)}" for name in ports}
        yield BrokerAddress(
            pod=pod.name,
            rocketmq=at["rocketmq"],
            metaq=at["metaq"],
            grpc=at.get("grpc"),
            leads_to=balancer(look.observed, outside_name(pod.name, listener)) or None,
        )


def _port(listener: ExternalListener, pod: Pod, name: str) -> int:
    first = None if pod.shard is None else told_port(listener, pod.shard, name)
    return PORTS[name] if first is None else first + pod.ordinal


def _told(look: ClusterLook, listener: ExternalListener, pod: Pod) -> str:
    """Return the host that a broker tells clients; empty: its pod is on no node yet."""
    assert pod.shard is not None, "a broker"
    if is_learnt(listener):
        return balancer(look.observed, outside_name(pod.name, listener))
    node = pod.node or ""
    if "{node}" in (listener.advertised_host_template or "") and not node:
        return ""
    return told_host(look.desired, listener, pod.shard, pod.ordinal, node) or pod.host


def _at(host: str, port: int) -> str | None:
    return f"{host}:{port}" if host else None
