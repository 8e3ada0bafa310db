"""A ZooKeeper of the cluster's own."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from imago_operator.manifests.common import (
    CONTAINER_SECURITY,
    LAST_WORDS,
    POD_SECURITY,
    Manifest,
    child,
    labels,
    merged,
    resources,
    selector,
)
from imago_operator.manifests.zookeeper_members import (
    FOLDER,
    FOUNDERS,
    MEMBERS,
    SERVERS,
    ServerNumbers,
    server_line,
)
from imago_operator.manifests.zookeeper_start import (
    ADDRESS,
    CONFIG,
    LIVES,
    STORES,
    TLS_FOLDER,
    is_ready,
    start,
)
from imago_operator.model import names
from imago_operator.model.desired import ZOOKEEPER_PORT, ZOOKEEPER_TLS_PORT, fingerprint
from imago_operator.spec.cluster.brokers import StorageType
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryTls
from imago_operator.spec.schema.common import Retention
from imago_operator.spec.schema.fields import chosen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.model.desired import Desired
    from imago_operator.spec.cluster.cluster import ManagedZooKeeper

TICK_MS: Final = 1000
"""Brokers ask for sessions from 2 s on, and the server grants at least two ticks."""
REPEATS_VOTE_MS: Final = 1000
"""How long a server waits at most before it repeats its vote. By default the wait doubles up to a
minute."""
LINGER_S: Final = 5
"""A server that is to stop goes on for a while: masters that are evicted with it hand over first,
which needs the registry, and it may be the one that leads ZooKeeper."""
HOSTNAME: Final = "kubernetes.io/hostname"
CLIENT: Final = {"client": ZOOKEEPER_PORT}
CLIENT_TLS: Final = {"client-tls": ZOOKEEPER_TLS_PORT}
PEERS: Final = {"peers": 2888, "election": 3888}
TLS: Final = "ZOO_TLS"
"""Variable that says which ports a server has for clients."""
QUORUM_TLS: Final = "ZOO_QUORUM_TLS"
"""Variable that says how it meets the other servers."""


def managed_zookeeper(
    desired: Desired, numbers: ServerNumbers | None = None, *, sleeps: bool = False
) -> list[Manifest]:
    """Return all objects of a managed ZooKeeper but its policies; none where it is external.

    `numbers`: of its servers, for now. `sleeps`: it has no pods.
    """
    managed = desired.spec.zookeeper.managed
    if managed is None:
        return []
    many = numbers or ServerNumbers(*(managed.replicas,) * 3)
    return [
        _config_map(desired, managed, many),
        *_services(desired),
        _service_account(desired),
        zookeeper_set(desired, managed, replicas=0 if sleeps else many.there),
    ]


def config_text() -> str:
    """Return zoo.cfg, but for where servers are."""
    lines = [
        f"tickTime={TICK_MS}",
        "initLimit=20",
        "syncLimit=5",
        "dataDir=/data",
        f"clientPort={ZOOKEEPER_PORT}",
        "maxClientCnxns=0",
        "minSessionTimeout=2000",
        "maxSessionTimeout=120000",
        "autopurge.snapRetainCount=5",
        "autopurge.purgeInterval=6",
        "4lw.commands.whitelist=srvr,ruok,mntr",
        "admin.enableServer=false",
        "standaloneEnabled=false",
        "reconfigEnabled=false",
        # Addresses of pods change; what is looked up must be looked up again.
        "quorumListenOnAllIPs=true",
        f"fastleader.maxNotificationInterval={REPEATS_VOTE_MS}",
    ]
    return "\n".join(lines) + "\n"


def zookeeper_set(
    desired: Desired, managed: ManagedZooKeeper, *, replicas: int | None = None
) -> Manifest:
    """Return the StatefulSet; its pods are restarted one by one by the operator.

    `replicas` 0 stops all of them.
    """
    template = zookeeper_template(desired, managed)
    claim_spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": managed.storage.size.text}},
    }
    if managed.storage.storage_class_name is not None:
        claim_spec["storageClassName"] = managed.storage.storage_class_name
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "labels": selector(desired, names.ZOOKEEPER)},
        "spec": claim_spec,
    }
    spec = {
        "serviceName": names.zookeeper_nodes(desired.name),
        "replicas": managed.replicas if replicas is None else replicas,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": _when_deleted(desired).value,
            "whenScaled": "Retain",
        },
        "selector": {"matchLabels": selector(desired, names.ZOOKEEPER)},
        "template": template,
        "volumeClaimTemplates": [claim],
    }
    noted = {
        names.CLAIM_TEMPLATE: fingerprint([claim]),
        names.TEMPLATE_HASH: template["metadata"]["annotations"][names.TEMPLATE_HASH],
    }
    return child(
        desired,
        "apps/v1",
        "StatefulSet",
        names.zookeeper(desired.name),
        names.ZOOKEEPER,
        {"spec": spec},
        annotations=noted,
    )


def _when_deleted(desired: Desired) -> Retention:
    """Return what becomes of its claims with the cluster: the same as of the brokers' logs.

    A registry that outlives them would have a new cluster of the name wait for their members.
    """
    storage = desired.spec.brokers.storage
    if storage.type is StorageType.EPHEMERAL:
        return Retention.DELETE
    return storage.persistent_volume_claim_retention_policy.when_deleted


@lru_cache(maxsize=128)
def zookeeper_notes(desired: Desired) -> dict[str, str]:
    """Return the operator's annotations of a server that is as it is to be."""
    managed = desired.spec.zookeeper.managed
    if managed is None:
        return {}
    noted = zookeeper_template(desired, managed)["metadata"]["annotations"]
    return {key: noted[key] for key in (names.TEMPLATE_HASH, names.SPEC_HASH)}


def zookeeper_template(desired: Desired, managed: ManagedZooKeeper) -> Manifest:
    template = managed.template
    volumes: list[Manifest] = [
        {"name": "config", "configMap": {"name": f"{names.zookeeper(desired.name)}-config"}},
        {"name": "logs", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    if desired.registry_tls is not RegistryTls.NONE:
        secret = {"secretName": names.zookeeper_certificate(desired.name), "defaultMode": 0o440}
        memory = {"medium": "Memory", "sizeLimit": "1Mi"}
        volumes += [{"name": "tls", "secret": secret}, {"name": "stores", "emptyDir": memory}]
    spec: Manifest = {
        "serviceAccountName": names.zookeeper(desired.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": merged(POD_SECURITY, template.security_context),
        "affinity": dict(template.affinity),
        "topologySpreadConstraints": list(template.topology_spread_constraints)
        or ([] if template.affinity else _apart(desired)),
        "imagePullSecrets": [{"name": s.name} for s in desired.spec.image_pull_secrets],
        "nodeSelector": dict(template.node_selector),
        "tolerations": list(template.tolerations),
        "priorityClassName": template.priority_class_name,
        "containers": [_container(desired, managed)],
        "volumes": [*volumes, *template.volumes],
    }
    spec = {key: value for key, value in spec.items() if value not in (None, [], {})}
    noted = {names.SPEC_HASH: said_hash(desired)}
    noted[names.TEMPLATE_HASH] = fingerprint([spec, noted])
    metadata = {
        "labels": {**template.metadata.labels, **labels(desired, names.ZOOKEEPER)},
        "annotations": {**template.metadata.annotations, **noted},
    }
    return {"metadata": metadata, "spec": spec}


def said_hash(desired: Desired) -> str:
    """Return what stands for all that the user said of servers; empty: nothing of them."""
    managed = desired.spec.zookeeper.managed
    return "" if managed is None else fingerprint(_said(desired, managed))


def tls_of_servers(pod: Mapping[str, Any]) -> RegistryTls:
    """Return which ports the server in a pod has for clients, as that is told."""
    told = _told_in(pod).get(TLS)
    return next((each for each in RegistryTls if each == told), RegistryTls.NONE)


def quorum_of_servers(pod: Mapping[str, Any]) -> QuorumTls:
    """Return how the server in a pod meets the others, as that is told."""
    told = _told_in(pod).get(QUORUM_TLS)
    return next((each for each in QuorumTls if each == told), QuorumTls.NONE)


def _told_in(pod: Mapping[str, Any]) -> dict[str, Any]:
    containers = pod.get("spec", {}).get("containers") or ()
    mine = (one for one in containers if one.get("name") == names.ZOOKEEPER)
    return {one["name"]: one.get("value") for each in mine for one in each.get("env") or ()}


def client_ports(desired: Desired) -> dict[str, int]:
    """Return the ports that servers have for clients, for now, by name."""
    plain = {} if desired.registry_tls is RegistryTls.ENFORCING else CLIENT
    return plain if desired.registry_tls is RegistryTls.NONE else plain | CLIENT_TLS


def _said(desired: Desired, managed: ManagedZooKeeper) -> Manifest:
    """Return what the user said that servers depend on; defaults of this version are not in it."""
    said = chosen(managed)
    of_pods: Manifest = {
        name: said[name] for name in ("image", "resources", "template", "tls") if name in said
    }
    if desired.servers_step:
        of_pods["step"] = desired.servers_step
    of_cluster = chosen(desired.spec)
    shared = {
        name: of_cluster[name]
        for name in ("imagePullPolicy", "imagePullSecrets")
        if name in of_cluster
    }
    return of_pods | shared | {"config": config_text()}


def _container(desired: Desired, managed: ManagedZooKeeper) -> Manifest:
    ready = is_ready(_domain(desired))
    container: Manifest = {
        "name": "zookeeper",
        "image": managed.image or desired.operator.zookeeper_image,
        "imagePullPolicy": desired.spec.image_pull_policy.value,
        "command": ["bash", "-c", start(desired.registry_tls, desired.quorum_tls)],
        "env": [
            {"name": "ZOO_LOG_DIR", "value": "/logs"},
            {"name": ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *_told(desired),
            *managed.template.container.env,
        ],
        "ports": [
            {"name": name, "containerPort": port}
            for name, port in (client_ports(desired) | PEERS).items()
        ],
        "resources": resources(managed.resources),
        "securityContext": merged(CONTAINER_SECURITY, managed.template.container.security_context),
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "config", "mountPath": FOLDER, "readOnly": True},
            {"name": "logs", "mountPath": "/logs"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  the pod's own
            *_mounts(desired),
            *managed.template.container.volume_mounts,
        ],
        "livenessProbe": {
            **_lives(desired),
            "initialDelaySeconds": 30,
            "periodSeconds": 10,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "exec": {"command": ["bash", "-c", ready]},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(LINGER_S)]}}},
        **LAST_WORDS,
    }
    return {key: value for key, value in container.items() if value != {}}


def _domain(desired: Desired) -> str:
    """Return in which each server has a name that the others know."""
    return f"{names.zookeeper_nodes(desired.name)}.{desired.namespace}.svc"


def _told(desired: Desired) -> list[Manifest]:
    tls, quorum = desired.registry_tls, desired.quorum_tls
    told = [] if tls is RegistryTls.NONE else [{"name": TLS, "value": tls.value}]
    if quorum is not QuorumTls.NONE:
        told.append({"name": QUORUM_TLS, "value": quorum.value})
    return told


def _mounts(desired: Desired) -> list[Manifest]:
    """Return where the server's certificate is, and where it is as the server wants it."""
    if desired.registry_tls is RegistryTls.NONE:
        return []
    return [
        {"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True},
        {"name": "stores", "mountPath": STORES},
    ]


def _lives(desired: Desired) -> Manifest:
    """Return how the kubelet sees that the server is there: its port, or from inside of the pod."""
    if desired.registry_tls is RegistryTls.ENFORCING:
        return {"exec": {"command": ["bash", "-c", LIVES]}, "timeoutSeconds": 5}
    return {"tcpSocket": {"port": "client"}}


def config_files(
    desired: Desired, managed: ManagedZooKeeper, numbers: ServerNumbers | None = None
) -> dict[str, str]:
    """Return what all servers read; it changes while they run."""
    many = numbers or ServerNumbers(*(managed.replicas,) * 3)
    name, domain = names.zookeeper(desired.name), _domain(desired)
    every = range(max(managed.replicas, many.there, many.members))
    places = [f"{server_line(name, domain, n)}\n" for n in every]
    return {
        # Servers of a template before decision 64 read from it who the others are.
        CONFIG: config_text() + "".join(places[: many.members]),
        SERVERS: "".join(places),
        MEMBERS: f"{many.members}\n",
        FOUNDERS: f"{many.founders}\n",
    }


def _config_map(desired: Desired, managed: ManagedZooKeeper, many: ServerNumbers) -> Manifest:
    return child(
        desired,
        "v1",
        "ConfigMap",
        f"{names.zookeeper(desired.name)}-config",
        names.ZOOKEEPER,
        {"data": config_files(desired, managed, many)},
    )


def _services(desired: Desired) -> list[Manifest]:
    find = selector(desired, names.ZOOKEEPER)
    ports = client_ports(desired)
    client: Manifest = {
        "selector": find,
        "ports": [{"name": n, "port": p, "targetPort": n} for n, p in ports.items()],
    }
    nodes: Manifest = {
        "clusterIP": "None",
        # Servers look for each other before any of them is ready.
        "publishNotReadyAddresses": True,
        "selector": find,
        "ports": [{"name": n, "port": p, "targetPort": n} for n, p in (ports | PEERS).items()],
    }
    pairs = [(names.zookeeper(desired.name), client), (names.zookeeper_nodes(desired.name), nodes)]
    return [
        child(desired, "v1", "Service", name, names.ZOOKEEPER, {"spec": spec})
        for name, spec in pairs
    ]


def _service_account(desired: Desired) -> Manifest:
    return child(
        desired,
        "v1",
        "ServiceAccount",
        names.zookeeper(desired.name),
        names.ZOOKEEPER,
        {"automountServiceAccountToken": False},
    )


def _apart(desired: Desired) -> list[Manifest]:
    """Keep servers on different nodes as far as there are any: no node has a majority.

    Nodes that are cordoned do not count, so that a drain goes on with fewer nodes than servers.
    """
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule",
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": selector(desired, names.ZOOKEEPER)},
        }
    ]
