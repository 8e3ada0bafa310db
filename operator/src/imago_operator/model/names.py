"""Names, labels and annotations of everything that belongs to a cluster."""

from __future__ import annotations

import re
from typing import Final

GROUP: Final = "imago.dev"
MANAGER: Final = "imago-operator"
"""Field manager of what we apply. For ever: another name would leave orphaned fields behind."""

CLUSTER_LABEL: Final = f"{GROUP}/cluster"
SHARD_LABEL: Final = f"{GROUP}/shard"
COMPONENT_LABEL: Final = f"{GROUP}/component"
PIPELINE_LABEL: Final = f"{GROUP}/pipeline"
USER_LABEL: Final = f"{GROUP}/user"
SCHEDULE_LABEL: Final = f"{GROUP}/scheduled-by"
"""Of an ImagoBackup: the ImagoScheduledBackup that has made it."""
MIRROR_LABEL: Final = f"{GROUP}/mirror"
ROLE_LABEL: Final = f"{GROUP}/role"
"""Of pods, for Services and selectors. Nothing is ever decided by it."""

APPLIED_HASH: Final = f"{GROUP}/applied-hash"
"""On every child: fingerprint of what was applied, so that nothing equal is sent again."""
TEMPLATE_HASH: Final = f"{GROUP}/template-hash"
SPEC_HASH: Final = f"{GROUP}/spec-hash"
CONFIG_HASH: Final = f"{GROUP}/config-hash"
VERSION: Final = f"{GROUP}/version"
RESTART: Final = f"{GROUP}/restart"
CLAIM_TEMPLATE: Final = f"{GROUP}/claim-template"
"""On StatefulSets: fingerprint of their claim templates, which Kubernetes never changes."""

ATTRIBUTES_CLASS: Final = f"{GROUP}/volume-attributes-class"
"""On claims: the VolumeAttributesClass that we asked for last."""

GROWN: Final = f"{GROUP}/grown-at"
"""On claims: when the operator last had one grow because its disk was full."""

EPOCH: Final = f"{GROUP}/epoch"
"""Of a pipeline's run: on the object and on the driver's pod."""

PAUSE: Final = f"{GROUP}/pause-reconciliation"
APPROVE: Final = f"{GROUP}/approve"
FORCE_RENEW: Final = f"{GROUP}/force-renew"
"""Of a user: any new value has its password replaced."""
FORCE_RENEW_CLIENTS_CA: Final = f"{GROUP}/force-renew-clients-ca"
"""Of a cluster: any new value has the authority that signs for clients replaced."""
STOP: Final = f"{GROUP}/stop"
"""Ends an ImagoRebalance: what brokers do for it by themselves is taken back."""
OPERATED_BY: Final = f"{GROUP}/operated-by"
"""Of a cluster: the installation that a person wants to look after it, as namespace/name."""
ALLOW_DATA_LOSS: Final = f"{GROUP}/allow-data-loss"
MOVE: Final = f"{GROUP}/move-member"
"""Of a broker's pod: \"true\" has its member begin anew on a new claim, wherever that may be."""
FENCED: Final = f"{GROUP}/fenced"
"""Of a cluster: pods of brokers that are to serve nobody, or `*`; with `!` though clients are
refused for it."""
HIDE_MESSAGES: Final = f"{GROUP}/hide-messages"
"""Of a topic: how many partitions it may be left with, whatever the others hold."""

BROKER: Final = "broker"
ZOOKEEPER: Final = "zookeeper"


def stateful_set(cluster: str, shard: int) -> str:
    return f"{cluster}-s{shard}"


def pod(cluster: str, shard: int, ordinal: int) -> str:
    return f"{stateful_set(cluster, shard)}-{ordinal}"


def claim(cluster: str, shard: int, ordinal: int) -> str:
    return f"data-{pod(cluster, shard, ordinal)}"


def headless(cluster: str) -> str:
    return f"{cluster}-brokers"


def bootstrap(cluster: str) -> str:
    return f"{cluster}-bootstrap"


def admin(cluster: str) -> str:
    return f"{cluster}-admin"


def listeners(cluster: str) -> str:
    """Name of the ConfigMap with the addresses that load balancers have got."""
    return f"{cluster}-listeners"


def config(cluster: str, revision: str) -> str:
    """Name of the ConfigMap with one revision of the brokers' file."""
    return f"{cluster}-config-{revision}"


def is_config(name: str) -> bool:
    """Whether a ConfigMap is named as a revision of the brokers' file."""
    return re.fullmatch(r".+-config-[0-9a-f]{16}", name) is not None


def token(cluster: str) -> str:
    return f"{cluster}-admin-token"


def registry_user(cluster: str) -> str:
    """Name of the Secret with the brokers' user in a managed ZooKeeper."""
    return f"{cluster}-zookeeper-user"


def authority(cluster: str) -> str:
    """Name of the Secret with the authority that signs members' certificates."""
    return f"{cluster}-ca"


def clients_authority(cluster: str) -> str:
    """Name of the Secret with the authority that signs clients' certificates."""
    return f"{cluster}-clients-ca"


def certificate(cluster: str, shard: int) -> str:
    """Name of the Secret with the certificate of a shard's members."""
    return f"{cluster}-s{shard}-tls"


def zookeeper_certificate(cluster: str) -> str:
    """Name of the Secret with the certificate of a managed ZooKeeper's servers."""
    return f"{cluster}-zookeeper-tls"


def service_account(cluster: str) -> str:
    return f"{cluster}-brokers"


def zookeeper(cluster: str) -> str:
    return f"{cluster}-zookeeper"


def zookeeper_nodes(cluster: str) -> str:
    return f"{cluster}-zookeeper-nodes"


def drain(cluster: str, shards: tuple[int, ...]) -> str:
    """Name of the ImagoRebalance that empties shards."""
    return f"{cluster}-drain-" + "-".join(str(shard) for shard in shards)


def fill(cluster: str, shards: tuple[int, ...]) -> str:
    """Name of the ImagoRebalance that gives queues to new shards."""
    return f"{cluster}-fill-" + "-".join(str(shard) for shard in shards)


def host(pod_name: str, cluster: str, namespace: str) -> str:
    """Return the name under which a broker is reached, whichever address it has."""
    return f"{pod_name}.{headless(cluster)}.{namespace}.svc"
