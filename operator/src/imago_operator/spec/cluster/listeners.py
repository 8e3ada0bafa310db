"""Ways in for clients outside of the Kubernetes cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from imago_operator.spec.cluster.brokers import ChildTemplate
from imago_operator.spec.schema.fields import described


class ListenerType(StrEnum):
    """How clients outside of the Kubernetes cluster come in."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalListener:
    """An endpoint for clients outside the Kubernetes cluster."""

    name: str = described("Name of the listener.", pattern=r"^[a-z][a-z0-9]{0,10}$", size_max=11)
    type: ListenerType = described(
        "NodePort: ports on the nodes. LoadBalancer: a load balancer for each broker."
    )
    advertised_host_template: str | None = described(
        "Address that brokers advertise to clients; may contain {shard}, {ordinal}, {pod} and"
        " {namespace}. Unless given, with NodePort the address of the pod's node.",
        default=None,
        pattern=r"^([A-Za-z0-9.-]|\{(shard|ordinal|pod|namespace)\})+$",
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
        "Whether this way in is for TLS only: its MetaQ ports lead to the brokers' TLS port, and"
        " RocketMQ's ports refuse clients without TLS, inside of the cluster too.",
        default=None,
    )
    authentication: ListenerAuthentication | None = described(
        "How its clients prove who they are.", default=None
    )
    service_template: ChildTemplate = described("Additions to the Services.", default=ChildTemplate)
