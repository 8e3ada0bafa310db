"""Where clients outside of the Kubernetes cluster find its name service and its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.manifests.services import (
    ENDPOINTS_OFFSET,
    NAME_SERVICE,
    NAME_SERVICE_OFFSET,
    PORTS,
    SDKS,
    ZOOKEEPER_OFFSET,
    broker_ports,
    node_port,
    outside_name,
    serves_plain_zookeeper,
)
from imago_operator.model import names
from imago_operator.model.desired import ZOOKEEPER_PORT
from imago_operator.model.outside import lets_sdks_in, told_host
from imago_operator.spec.cluster.cluster_status import BrokerAddress, ListenerStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.model.state import Pod
    from imago_operator.plan.look import ClusterLook
    from imago_operator.spec.cluster.listeners import ExternalListener

BROKERS_MAX: Final = 256
"""Listed of each listener: a status has its size."""


def listeners(look: ClusterLook) -> tuple[ListenerStatus, ...]:
    """Return the ways in that a cluster has now."""
    return tuple(_listener(look, listener) for listener in look.desired.spec.listeners)


def _listener(look: ClusterLook, listener: ExternalListener) -> ListenerStatus:
    desired = look.desired
    pods = [pod for n in look.running for pod in look.observed.pods_of(n)]
    bootstrap, zookeeper = names.bootstrap(desired.name), names.zookeeper(desired.name)
    first, of_sdks = listener.first_node_port, listener.first_grpc_node_port
    endpoints = None
    if first is not None:
        # Its ports are open on every node; the broker's name leads to one, and is certified.
        told = (_told(look, listener, pod) for pod in pods)
        host = listener.bootstrap_host or next(filter(None, told), "")
        asked = _at(host, first + NAME_SERVICE_OFFSET)
        registry = _at(host, first + ZOOKEEPER_OFFSET)
        endpoints = None if of_sdks is None else _at(host, of_sdks + ENDPOINTS_OFFSET)
    else:
        host = listener.bootstrap_host or _balancer(look, outside_name(bootstrap, listener))
        asked, endpoints = _at(host, NAME_SERVICE), _at(host, SDKS)
        registry = _at(_balancer(look, outside_name(zookeeper, listener)), ZOOKEEPER_PORT)
    return ListenerStatus(
        name=listener.name,
        bootstrap=asked,
        grpc=endpoints if lets_sdks_in(desired.spec, listener) else None,
        zookeeper=registry if serves_plain_zookeeper(desired) else None,
        brokers=tuple(_brokers(look, listener, pods[:BROKERS_MAX])),
    )


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
            leads_to=_balancer(look, outside_name(pod.name, listener)) or None,
        )


def _port(listener: ExternalListener, pod: Pod, name: str) -> int:
    first = None if pod.shard is None else node_port(listener, pod.shard, name)
    return PORTS[name] if first is None else first + pod.ordinal


def _told(look: ClusterLook, listener: ExternalListener, pod: Pod) -> str:
    """Return the host that a broker tells clients; empty: its pod is on no node yet."""
    assert pod.shard is not None, "a broker"
    return told_host(look.desired, listener, pod.shard, pod.ordinal) or pod.host


def _balancer(look: ClusterLook, service: str) -> str:
    """Return the address that a Service's load balancer has got; empty: none."""
    found = look.observed.child("Service", service)
    status = found.live.get("status") or {} if found is not None else {}
    for led in (status.get("loadBalancer") or {}).get("ingress") or ():
        if address := led.get("hostname") or led.get("ip"):
            return str(address)
    return ""


def _at(host: str, port: int) -> str | None:
    return f"{host}:{port}" if host else None
