"""What the pod of a broker is told, besides the file that all brokers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imago_operator.manifests.common import TERMINATION_LOG
from imago_operator.manifests.services import PORTS, broker_ports, node_port, told_port
from imago_operator.model import names
from imago_operator.model.desired import REGISTRY_USER, ZOOKEEPER_TLS_PORT
from imago_operator.model.listeners import are_apart, is_learnt, learns_hosts, outside, own_ports
from imago_operator.model.podfiles import (
    LISTENERS_FOLDER,
    ZOOKEEPER_TLS_FOLDER,
    ZOOKEEPER_USER_FOLDER,
)
from imago_operator.spec.cluster.zookeeper import RegistryAccess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.broker_rules.keys import Scalar
    from imago_operator.manifests.common import Manifest
    from imago_operator.model.desired import Desired
    from imago_operator.spec.cluster.listeners import ExternalListener

REGISTRY: Final = "IMAGO__ZOOKEEPER__"
REGISTRY_CA: Final = f"{ZOOKEEPER_TLS_FOLDER}/ca.crt"
ADVERTISED_PORTS: Final = {
    "metaq": "IMAGO__METAQ__ADVERTISED_PORT",
    "rocketmq": "IMAGO__ROCKETMQ__ADVERTISED_PORT",
    "grpc": "IMAGO__ROCKETMQ__GRPC_ADVERTISED_PORT",
}
NODE: Final = "spec.nodeName"
NODE_INFO: Final = {"NODE_NAME": NODE, "NODE_ADDRESS": "status.hostIP"}
POD_INFO: Final = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_ORDINAL": "metadata.labels['apps.kubernetes.io/pod-index']",
}


def environment(desired: Desired, shard: int) -> list[Manifest]:
    """Return what a broker's pod is told of itself."""
    found: list[Manifest] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in POD_INFO.items()
    ]
    found += [
        {"name": "IMAGO__BROKER__SHARD", "value": str(shard)},
        {
            "name": "IMAGO__BROKER__HOST",
            "value": names.host("$(POD_NAME)", desired.name, "$(POD_NAMESPACE)"),
        },
        # For people who run `imago …` in the pod.
        {"name": "IMAGO_ADMIN_TOKEN_FILE", "value": "/etc/imago/token/token"},
        {"name": "IMAGO_TERMINATION_LOG", "value": TERMINATION_LOG},
    ]
    external = desired.spec.zookeeper.external
    if external is not None and external.auth is not None:
        named = {"secretKeyRef": {"name": external.auth.secret_name, "key": "username"}}
        found.append({"name": "IMAGO__ZOOKEEPER__USER", "valueFrom": named})
    if external is not None:
        # A pod whose files are for one port is not to use another: the file that all share is
        # changed under it.
        found.append({"name": f"{REGISTRY}CONNECT", "value": desired.zookeeper_connect})
    found += [_setting(name, said) for name, said in sorted(desired.of_pods.items())]
    if desired.registry_over_tls:
        found += registry_tls_environment(desired.name, desired.namespace)
    if desired.registry_access is not RegistryAccess.NONE:
        found += registry_environment(desired.registry_access)
    apart = are_apart(desired.spec)
    if apart:
        found += _listeners(desired, shard)
    for listener in () if apart else desired.spec.listeners:
        found += _advertised(desired, listener, shard)
    if (apart or not desired.spec.listeners) and desired.spec.tls is None:
        # Not its name: Java clients keep what a name was for 30 s, and would look for a pod that
        # was restarted where it is no more. With TLS it is, for certificates can name no pod's
        # address.
        address = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        found.append({"name": "IMAGO__BROKER__ADVERTISED_HOST", **address})
    return found


def _listeners(desired: Desired, shard: int) -> list[Manifest]:
    """Return where a broker listens besides its own ports, and what it tells clients there."""
    ways = outside(desired.spec)
    found: list[Manifest] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in NODE_INFO.items()
    ]
    texts = ",".join(_listener(desired, way, shard) for way in ways)
    found += [{"name": "IMAGO__BROKER__LISTENERS", "value": texts}] if texts else []
    if learns_hosts(desired.spec):
        named = f"{LISTENERS_FOLDER}/$(POD_NAME)"
        found.append({"name": "IMAGO__BROKER__LISTENER_HOSTS_FILE", "value": named})
    for way in ways:
        if way.metaq is not None:
            found.append({"name": "IMAGO__METAQ__LISTENER", "value": way.name})
    return found


def _listener(desired: Desired, way: ExternalListener, shard: int) -> str:
    words = [way.name]
    if not is_learnt(way):
        words.append(f"host={_host(way, shard) or '$(NODE_ADDRESS)'}")
    for protocol, port in own_ports(desired.spec, way).items():
        told = told_port(way, shard, protocol)
        said = str(PORTS[protocol]) if told is None else f"{told // 10}$(POD_ORDINAL)"
        words.append(f"{protocol}={port}" + ("" if protocol == "namesrv" else f":{said}"))
    return " ".join([*words, "tls"] if way.tls else words)


def _host(listener: ExternalListener, shard: int) -> str:
    """Return what clients are told, in terms of the pod's environment; empty: its node's."""
    return (
        (listener.advertised_host_template or "")
        .replace("{shard}", str(shard))
        .replace("{ordinal}", "$(POD_ORDINAL)")
        .replace("{pod}", "$(POD_NAME)")
        .replace("{node}", "$(NODE_NAME)")
        .replace("{namespace}", "$(POD_NAMESPACE)")
    )


def _setting(name: str, said: Scalar) -> Manifest:
    """Return a setting as brokers read it of their environment."""
    section, _, key = name.upper().partition(".")
    value = str(said).lower() if isinstance(said, bool) else str(said)
    return {"name": f"IMAGO__{section}__{key}", "value": value}


def registry_environment(access: RegistryAccess) -> list[Manifest]:
    """Return who a broker is to a managed ZooKeeper.

    In the pod, not in the file that all share: a pod that has no such Secret yet starts as before.
    """
    protect = str(access is RegistryAccess.ENFORCING).lower()
    said = {
        "USER": REGISTRY_USER,
        "PASSWORD_FILE": f"{ZOOKEEPER_USER_FOLDER}/password",
        "PROTECT": protect,
    }
    return [{"name": f"{REGISTRY}{key}", "value": value} for key, value in said.items()]


def registry_tls_environment(cluster: str, namespace: str) -> list[Manifest]:
    """Return how a broker reaches a managed ZooKeeper over TLS."""
    address = f"{names.zookeeper(cluster)}.{namespace}.svc:{ZOOKEEPER_TLS_PORT}"
    said = {"CONNECT": address, "TLS_CA_FILE": REGISTRY_CA}
    return [{"name": f"{REGISTRY}{key}", "value": value} for key, value in said.items()]


def is_over_tls(pod: Mapping[str, Any]) -> bool:
    """Whether the broker in a pod is told to reach ZooKeeper over TLS."""
    return _told(pod).get(f"{REGISTRY}TLS_CA_FILE") == REGISTRY_CA


def registry_access_of(pod: Mapping[str, Any]) -> RegistryAccess:
    """Return who may change the nodes of the broker in a pod, as that is told."""
    told = _told(pod)
    if told.get(f"{REGISTRY}USER") != REGISTRY_USER:
        return RegistryAccess.NONE
    closed = told.get(f"{REGISTRY}PROTECT") == "true"
    return RegistryAccess.ENFORCING if closed else RegistryAccess.PERMISSIVE


def ports_of_pod(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the ports of the broker in a pod."""
    containers = pod.get("spec", {}).get("containers") or ()
    brokers = (one for one in containers if one.get("name") == names.BROKER)
    return frozenset(port.get("name", "") for one in brokers for port in one.get("ports") or ())


def _told(pod: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what the broker in a pod is told of its environment."""
    containers = pod.get("spec", {}).get("containers") or ()
    return {
        one["name"]: one.get("value")
        for container in containers
        if container.get("name") == names.BROKER
        for one in container.get("env") or ()
    }


def _advertised(desired: Desired, listener: ExternalListener, shard: int) -> list[Manifest]:
    """Return what a broker tells its clients, in terms of its environment."""
    host: Manifest = {"valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    if listener.advertised_host_template:
        host = {"value": _host(listener, shard)}
    found: list[Manifest] = []
    if "{node}" in (listener.advertised_host_template or ""):
        found.append({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": NODE}}})
    found.append({"name": "IMAGO__BROKER__ADVERTISED_HOST", **host})
    for name in broker_ports(desired, listener):
        port = node_port(listener, shard, name)
        if port is not None:
            said = {"name": ADVERTISED_PORTS[name], "value": f"{port // 10}$(POD_ORDINAL)"}
            found.append(said)
    return found
