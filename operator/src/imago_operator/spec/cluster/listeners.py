"""Ways in for clients, above all for those outside of the Kubernetes cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from imago_operator.spec.cluster.brokers import ChildTemplate
from imago_operator.spec.schema.common import Strings
from imago_operator.spec.schema.fields import described


class ListenerType(StrEnum):
    """How clients come in."""

    INTERNAL = "Internal"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class ListenerAuthenticationType(StrEnum):
    """How clients of a listener prove who they are."""

    NONE = "None"
    TLS = "Tls"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAuthentication:
    """How clients of a listener prove who they are, before any request of theirs."""

    type: ListenerAuthenticationType = described(
        "None: as each request says, if spec.authorization asks for it. Tls: nobody is served"
        " without a certificate of spec.tls.clientsCa, inside of the cluster too.",
        default=ListenerAuthenticationType.NONE,
    )


NETWORK = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerBroker:
    """What differs from broker to broker: ports, and templates."""

    first_port: int | None = described(
        "First of the ports that clients are told where they are not those of the Service: numbered"
        " as firstNodePort says, and a multiple of 10.",
        default=None,
        low=10,
        high=65530,
    )
    first_grpc_port: int | None = described(
        "The same for RocketMQ 5's SDKs, numbered as firstGrpcNodePort says.",
        default=None,
        low=10,
        high=65530,
    )
    labels: Strings = described(
        "Labels of each broker's Service; their values may contain {pod}, {shard} and {ordinal}.",
        default=dict,
        item_size_max=63,
    )
    annotations: Strings = described(
        "Annotations of each broker's Service, for what makes DNS names or load balancers; their"
        " values may contain {pod}, {shard}, {ordinal} and {namespace}.",
        default=dict,
        item_size_max=1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqClients:
    """That MetaQ's clients come in, and who reaches the managed ZooKeeper in which they look."""

    zookeeper_source_ranges: tuple[str, ...] = described(
        "Networks whose clients reach a managed ZooKeeper, which has no password for them.",
        default=(),
        size_max=32,
        item_pattern=NETWORK,
        item_size_max=43,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalListener:
    """A way in: each has ports of its own, and tells its clients addresses of its own."""

    name: str = described("Name of the listener.", pattern=r"^[a-z][a-z0-9]{0,10}$", size_max=11)
    type: ListenerType = described(
        "Internal: from inside of the Kubernetes cluster, by the cluster's own Services. NodePort:"
        " ports on the nodes. LoadBalancer: a load balancer for each broker."
    )
    advertised_host_template: str | None = described(
        "Address that brokers advertise to clients; may contain {shard}, {ordinal}, {pod}, {node}"
        " and {namespace}. Unless given, with NodePort the address of the pod's node, with"
        " LoadBalancer the one that the broker's load balancer has got.",
        default=None,
        pattern=r"^([A-Za-z0-9.-]|\{(shard|ordinal|pod|node|namespace)\})+$",
        size_max=253,
    )
    bootstrap_host: str | None = described(
        "Name, or address, at which clients outside ask the name service; certificates name it, and"
        " the status shows it.",
        default=None,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$",
        size_max=253,
    )
    first_node_port: int | None = described(
        "With NodePort: first port on the nodes, a multiple of 10. Shard s has twenty ports from"
        " first + 20 s on: its member m has + m for MetaQ, + 10 + m for RocketMQ. The name service"
        " is at first + 9, a managed ZooKeeper at first + 8.",
        default=None,
        low=1024,
        high=65535,
    )
    first_grpc_node_port: int | None = described(
        "With NodePort, for RocketMQ 5's SDKs (gRPC): first port on the nodes, a multiple of 10."
        " Shard s has ten ports from first + 10 s on, + m for its member m; what SDKs ask first is"
        " at first + 9. Unless given, SDKs do not come in by the nodes.",
        default=None,
        low=1024,
        high=65535,
    )
    tls: bool | None = described(
        "Whether this way in is for TLS only. Of one listener without an Internal beside it, all"
        " clients of RocketMQ need TLS then, inside of the cluster too.",
        default=None,
    )
    authentication: ListenerAuthentication | None = described(
        "How its clients prove who they are.", default=None
    )
    per_broker: PerBroker = described("What differs from broker to broker.", default=PerBroker)
    load_balancer_source_ranges: tuple[str, ...] = described(
        "With LoadBalancer: networks whose clients are let in; empty: all.",
        default=(),
        size_max=32,
        item_pattern=NETWORK,
        item_size_max=43,
    )
    admin: bool | None = described(
        "Whether the brokers' administration over HTTPS is reached here, too: at 8080 of the load"
        " balancer that clients ask first, or at firstNodePort + 19 of any node.",
        default=None,
    )
    metaq: MetaqClients | None = described(
        "That MetaQ's clients come in here. ZooKeeper has one address of each broker: with this"
        " field that of this listener, for MetaQ's clients inside of the cluster too.",
        default=None,
    )
    service_template: ChildTemplate = described("Additions to the Services.", default=ChildTemplate)
