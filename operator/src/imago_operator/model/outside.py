"""What clients outside of the Kubernetes cluster are told: hosts of brokers, by listener."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from imago_operator.model import names

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired
    from imago_operator.spec.cluster.cluster import ClusterSpec
    from imago_operator.spec.cluster.listeners import ExternalListener


def serves_sdks(spec: ClusterSpec) -> bool:
    """Whether brokers have a port for RocketMQ 5's SDKs, which speak gRPC."""
    said = spec.brokers.config.get("rocketmq.grpc_enabled")
    return said is None or str(said.value).lower() != "false"


def lets_sdks_in(spec: ClusterSpec, listener: ExternalListener) -> bool:
    """Whether SDKs come in by a listener: with ports on the nodes only where it says which."""
    by_nodes = listener.first_node_port is not None
    return serves_sdks(spec) and (listener.first_grpc_node_port is not None or not by_nodes)


def told_host(desired: Desired, listener: ExternalListener, shard: int, ordinal: int) -> str:
    """Return the host that a broker tells its clients; empty: its node's, whichever that is."""
    return (
        (listener.advertised_host_template or "")
        .replace("{shard}", str(shard))
        .replace("{ordinal}", str(ordinal))
        .replace("{pod}", names.pod(desired.name, shard, ordinal))
        .replace("{namespace}", desired.namespace)
    )


def general_name(host: str) -> str:
    """Return a host as a certificate names it: clients look for an address among addresses."""
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
