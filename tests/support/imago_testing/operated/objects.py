"""A world of the operator's model as the objects that Kubernetes has, and as brokers answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from imago_operator.kube.resources import RESOURCES
from imago_operator.manifests.config import CONFIG
from imago_operator.manifests.environment import registry_environment, registry_tls_environment
from imago_operator.manifests.zookeeper import QUORUM_TLS
from imago_operator.manifests.zookeeper import TLS as ZOO_TLS
from imago_operator.model import names
from imago_operator.model.state import written
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryAccess, RegistryTls
from imago_testing.operated.resources import OPERATOR, UID

if TYPE_CHECKING:
    from imago_operator.model.state import Claim, Pod, Probe
    from imago_testing.operated.world import ClusterWorld

Objects = dict[str, list[dict[str, Any]]]


def objects_of(world: ClusterWorld) -> Objects:
    """Return everything but the ImagoCluster, by the name that kubectl knows a kind by."""
    found: Objects = {name(kind): [] for kind in RESOURCES}
    for (kind, _), manifest in world.manifests.items():
        child = world.children[kind, manifest["metadata"]["name"]]
        made = json.loads(json.dumps(manifest))
        made["metadata"]["uid"] = child.uid
        found[name(kind)].append(made)
    token = world.children.get(("Secret", names.token("demo")))
    if token is not None:
        found["secrets"] = [{"metadata": {"name": token.name, "uid": token.uid, **owned(UID)}}]
    if world.registry_user:
        user = {"name": names.registry_user("demo"), "uid": "registry-user"}
        found["secrets"] = [*found.get("secrets", []), {"metadata": user}]
    signed = (names.authority("demo"), names.zookeeper_certificate("demo"))
    secrets = [{"metadata": {"name": each, "uid": each}} for each in signed]
    found["secrets"] = [*found.get("secrets", []), *secrets]
    uids = {child.name: child.uid for child in world.children.values()}
    found["pods"] = [pod_object(pod, uids) for pod in world.pods.values()]
    found["persistentvolumeclaims"] = [claim_object(claim) for claim in world.claims.values()]
    found["nodes"] = [
        {"metadata": {"name": n, "labels": {"topology.kubernetes.io/zone": node.rack}}}
        for n, node in world.nodes.items()
    ]
    usual = {"storageclass.kubernetes.io/is-default-class": "true"}
    found["storageclasses.storage.k8s.io"] = [
        {"metadata": {"name": "standard", "annotations": usual}, "allowVolumeExpansion": True}
    ]
    found["deployments.apps"] = [operator_object()]
    return found


def operator_object() -> dict[str, Any]:
    """The operator's Deployment."""
    arguments = [
        "operator",
        f"--broker-image={OPERATOR.broker_image}",
        "--zookeeper-image",
        OPERATOR.zookeeper_image,
    ]
    container = {"name": "operator", "args": arguments}
    return {
        "metadata": {
            "name": "imago-operator",
            "namespace": OPERATOR.namespace,
            "labels": {"app.kubernetes.io/name": "imago-operator"},
        },
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def pod_object(pod: Pod, uids: dict[str, str]) -> dict[str, Any]:
    owner = pod.name.rpartition("-")[0]
    component = names.ZOOKEEPER if pod.shard is None else names.BROKER
    labels = {names.CLUSTER_LABEL: "demo", names.COMPONENT_LABEL: component}
    if pod.shard is not None:
        labels[names.SHARD_LABEL] = str(pod.shard)
    if pod.role_label is not None:
        labels[names.ROLE_LABEL] = pod.role_label
    return {
        "metadata": {
            "name": pod.name,
            "namespace": "mq",
            "uid": pod.uid,
            "labels": labels,
            "annotations": dict(pod.annotations),
            **owned(uids[owner]),
        },
        "spec": {
            "nodeName": pod.node,
            "containers": [{"name": component, "env": told_of_registry(pod)}],
            "volumes": [{"name": CONFIG, "configMap": {"name": pod.config}}],
        },
        "status": {
            "podIP": f"10.0.{9 if pod.shard is None else pod.shard}.{pod.ordinal + 1}",
            "conditions": [{"type": "Ready", "status": str(pod.ready)}],
        },
    }


def pod_status(pod: Pod) -> dict[str, Any]:
    """Return what a kubelet says of a pod; the fake brokers answer to names."""
    ready: dict[str, Any] = {"type": "Ready", "status": "True" if pod.ready else "False"}
    if pod.turned is not None:
        ready["lastTransitionTime"] = written(pod.turned)
    status: dict[str, Any] = {"conditions": [ready]}
    if pod.broker is not None:
        status["podIP"] = pod.name
    if pod.waiting:
        state: dict[str, Any] = {"state": {"waiting": {"reason": pod.waiting}}}
        if pod.failure:
            words = pod.failure.rpartition(": ")[2]
            state["lastState"] = {"terminated": {"exitCode": 2, "message": words}}
        status["containerStatuses"] = [{"name": names.BROKER, **state}]
    return status


def told_of_registry(pod: Pod) -> list[dict[str, Any]]:
    """Return how a broker meets ZooKeeper, or a server its clients, as its environment says."""
    if pod.shard is None:
        tls, quorum = pod.registry_tls, pod.quorum_tls
        found = [] if tls is RegistryTls.NONE else [{"name": ZOO_TLS, "value": tls.value}]
        if quorum is not QuorumTls.NONE:
            found.append({"name": QUORUM_TLS, "value": quorum.value})
        return found
    told = registry_tls_environment("demo", "mq") if pod.registry_over_tls else []
    if pod.registry_access is not RegistryAccess.NONE:
        told += registry_environment(pod.registry_access)
    return told


def claim_object(claim: Claim) -> dict[str, Any]:
    size = str(claim.requested)
    return {
        "metadata": {
            "name": claim.name,
            "uid": claim.uid,
            "labels": {names.CLUSTER_LABEL: "demo", names.SHARD_LABEL: str(claim.shard)},
        },
        "spec": {"resources": {"requests": {"storage": size}}, "storageClassName": "standard"},
        "status": {"phase": claim.phase, "capacity": {"storage": size}},
    }


def owned(uid: str) -> dict[str, Any]:
    return {"ownerReferences": [{"uid": uid, "controller": True}]}


def name(kind: str) -> str:
    resource = RESOURCES[kind]
    group, slash, _ = resource.api_version.partition("/")
    return f"{resource.plural}.{group}" if slash else resource.plural


def answers_of(world: ClusterWorld) -> dict[str, dict[str, Any]]:
    """Return what brokers answer, by pod and by method and path."""
    seen = world.observe()
    assert seen.registry is not None
    shards = [
        {
            "id": shard.id,
            "name": f"shard-{shard.id}",
            "master": shard.master,
            "epoch": shard.epoch,
            "members": [
                {"uuid": m.uuid, "inSync": m.in_sync, "lagBytes": m.lag_bytes}
                for m in shard.members
            ],
            "cordoned": shard.cordoned,
            "drained": shard.drained,
        }
        for shard in seen.registry.shards.values()
    ]
    cluster = {
        "clusterId": seen.registry.cluster_id,
        "zooKeeperConnected": seen.registry.connected,
        "shards": shards,
    }
    return {
        pod.name: {
            "GET /admin/v1/cluster": [200, cluster],
            **{f"GET /admin/v1/{path}": [200, said] for path, said in _probed(pod.broker).items()},
        }
        for pod in seen.pods
        if pod.broker is not None
    }


def _probed(broker: Probe) -> dict[str, Any]:
    check = broker.restart
    assert check is not None
    items = [{"key": k, "value": v, "dynamic": True} for k, v in broker.config.items()]
    return {
        "status": {
            "uuid": broker.uuid,
            "shard": f"shard-{broker.shard}",
            "role": broker.role,
            "settled": broker.settled,
            "version": broker.version,
        },
        "config": {"items": items},
        "restart-check": {"safe": check.safe, "risks": list(check.risks)},
        "restart-done": {"caughtUp": broker.caught_up},
    }
