"""The StatefulSet of one shard, and the pods it makes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from imago_operator.manifests import recovering
from imago_operator.manifests.common import (
    CONTAINER_SECURITY,
    LAST_WORDS,
    POD_SECURITY,
    Manifest,
    child,
    http_get,
    labels,
    merged,
    resources,
    selector,
)
from imago_operator.manifests.config import CONFIG, FILE, config_name
from imago_operator.manifests.environment import environment
from imago_operator.manifests.services import ports_of
from imago_operator.model import names
from imago_operator.model.desired import clients_ca_secret, fingerprint
from imago_operator.model.listeners import learns_hosts
from imago_operator.model.podfiles import (
    ACCOUNT_FOLDER,
    BUCKET_FOLDER,
    CLIENTS_CA_FOLDER,
    LISTENERS_FOLDER,
    TLS_FOLDER,
    ZOOKEEPER_TLS_FOLDER,
    ZOOKEEPER_USER_FOLDER,
)
from imago_operator.spec.cluster.brokers import AntiAffinity, StorageType
from imago_operator.spec.cluster.zookeeper import RegistryAccess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.model.desired import Desired

HANDOVER: Final = """\
import urllib.request as http
call = http.Request("http://127.0.0.1:8080/admin/v1/handover", b"{}", method="POST")
call.add_header("Authorization", "Bearer " + open("/etc/imago/token/token").read().strip())
try:
    http.urlopen(call, timeout=%d).read()
except OSError:
    pass  # it does not lead, or nobody can take over: the broker's own stop says what is lost
"""
"""Run before a pod is stopped, from inside of it, where the token is."""
TLS: Final = "tls"
"""Volume with the certificate; pods that have it serve TLS."""
CLIENTS_CA: Final = "clients-ca"
"""Volume with the authorities that sign for clients, without their keys."""
ACCOUNT: Final = "account"
LISTENERS: Final = "listeners"
"""Volume with the addresses that load balancers have got, a file for each pod."""
STARTUP_TRIES: Final = 600
"""One each second: a log of some hundred GB is recovered in that time. A pod that serves after two
seconds counts as started then, and the next one is restarted."""


def stateful_set(desired: Desired, shard: int, *, replicas: int | None = None) -> Manifest:
    """Return the StatefulSet of a shard; `replicas` 0 stops a shard that goes."""
    name = names.stateful_set(desired.name, shard)
    storage = desired.spec.brokers.storage
    template = pod_template(desired, shard)
    spec: Manifest = {
        "serviceName": names.headless(desired.name),
        "replicas": desired.replicas if replicas is None else replicas,
        # All at once: after a full stop members wait for each other.
        "podManagementPolicy": "Parallel",
        # Pods are deleted by the operator, which asks the brokers first.
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 3,
        # Claims are given up by the operator alone, which knows whose data they hold.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": selector(desired, names.BROKER, shard)},
        "template": template,
    }
    if storage.type is StorageType.CLAIM:
        spec["volumeClaimTemplates"] = [_claim(desired, shard)]
    noted = {
        names.CLAIM_TEMPLATE: fingerprint(spec.get("volumeClaimTemplates", [])),
        names.TEMPLATE_HASH: template["metadata"]["annotations"][names.TEMPLATE_HASH],
    }
    return child(
        desired,
        "apps/v1",
        "StatefulSet",
        name,
        names.BROKER,
        {"spec": spec},
        shard=shard,
        annotations=noted,
    )


@lru_cache(maxsize=1024)
def template_notes(desired: Desired, shard: int) -> dict[str, str]:
    """Return the operator's annotations of a pod that is as it is to be."""
    noted: dict[str, str] = pod_template(desired, shard)["metadata"]["annotations"]
    ours = (names.TEMPLATE_HASH, names.SPEC_HASH, names.CONFIG_HASH, names.VERSION, names.RESTART)
    return {key: noted[key] for key in ours if key in noted}


def pod_template(desired: Desired, shard: int) -> Manifest:
    template = desired.spec.brokers.template.pod
    spec = _pod_spec(desired, shard, config_name(desired))
    noted = {
        names.SPEC_HASH: spec_hash(desired, shard),
        names.CONFIG_HASH: desired.config_hash,
        names.VERSION: desired.version,
    }
    if desired.resource.restart:
        noted[names.RESTART] = desired.resource.restart
    # Which file it is counts by what needs a restart: the rest is set while brokers run.
    # What a member begins with is nothing to restart one for that has begun.
    begun = replace(desired, recovers=False)
    noted[names.TEMPLATE_HASH] = fingerprint([_pod_spec(begun, shard, ""), noted])
    metadata = {
        "labels": {**template.metadata.labels, **labels(desired, names.BROKER, shard)},
        "annotations": {**template.metadata.annotations, **noted},
    }
    return {"metadata": metadata, "spec": spec}


def spec_hash(desired: Desired, shard: int) -> str:
    """Return what stands for all that the user said of a shard's pods."""
    pool = desired.pool(shard)
    if pool is None:
        return desired.spec_hash
    return fingerprint([desired.spec_hash, dict(pool.node_selector), pool.tolerations])


def _pod_spec(desired: Desired, shard: int, config: str) -> Manifest:
    template, pool = desired.spec.brokers.template.pod, desired.pool(shard)
    spec: Manifest = {
        "serviceAccountName": names.service_account(desired.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.termination_grace_period_seconds,
        "securityContext": merged(POD_SECURITY, template.security_context),
        "containers": [_container(desired, shard), *template.sidecars],
        "volumes": [*_volumes(desired, shard, config), *template.volumes],
        "affinity": dict(template.affinity) or _affinity(desired, shard),
        "topologySpreadConstraints": list(template.topology_spread_constraints)
        or _spread(desired, shard),
        "imagePullSecrets": [{"name": s.name} for s in desired.spec.image_pull_secrets],
        "initContainers": [*recovering.containers(desired, shard), *template.init_containers],
        "tolerations": [*template.tolerations, *(pool.tolerations if pool else ())],
        "nodeSelector": desired.node_selector(shard),
        "priorityClassName": template.priority_class_name,
    }
    return {key: value for key, value in spec.items() if value not in (None, [], {})}


def _container(desired: Desired, shard: int) -> Manifest:
    template = desired.spec.brokers.template.container
    wait_s = int(desired.spec.update_policy.handover_timeout.seconds)
    container: Manifest = {
        "name": "broker",
        "image": desired.image,
        "imagePullPolicy": desired.spec.image_pull_policy.value,
        "args": ["broker", "--config", f"/etc/imago/config/{FILE}"],
        "env": [*environment(desired, shard), *template.env],
        "ports": [
            {"name": name, "containerPort": port} for name, port in ports_of(desired).items()
        ],
        "resources": resources(desired.spec.brokers.resources),
        "securityContext": merged(CONTAINER_SECURITY, template.security_context),
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": CONFIG, "mountPath": "/etc/imago/config", "readOnly": True},
            {"name": "token", "mountPath": "/etc/imago/token", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  the pod's own
            *_mounts(desired),
            *template.volume_mounts,
        ],
        # While the log is recovered nothing answers yet, and nothing is wrong.
        "startupProbe": _probe("/healthz", every=1, tries=STARTUP_TRIES),
        "livenessProbe": _probe("/healthz", every=10, tries=6),
        # Ready: it serves what it has, though it may take no messages for now: a full disk, or a
        # registry that is away, must not leave clients without any address.
        "readinessProbe": _probe("/readyz", every=2, tries=2),
        "lifecycle": {
            "preStop": {"exec": {"command": ["python3", "-c", HANDOVER % wait_s]}},
        },
        **LAST_WORDS,
    }
    return {key: value for key, value in container.items() if value != {}}


def _probe(path: str, *, every: int, tries: int) -> Manifest:
    limits = {"periodSeconds": every, "timeoutSeconds": 5, "failureThreshold": tries}
    return http_get(path, "admin") | limits


def _mounts(desired: Desired) -> list[Manifest]:
    """Return where files are that only some clusters have."""
    found = []
    if desired.spec.tls is not None:
        found.append((TLS, TLS_FOLDER))
    if clients_ca_secret(desired):
        found.append((CLIENTS_CA, CLIENTS_CA_FOLDER))
    if learns_hosts(desired.spec):
        found.append((LISTENERS, LISTENERS_FOLDER))
    if desired.spec.authorization.token_review:
        found.append((ACCOUNT, ACCOUNT_FOLDER))
    found += [(name, folder) for name, folder, _ in _given_secrets(desired)]
    files = [{"name": name, "mountPath": path, "readOnly": True} for name, path in found]
    return files + recovering.backup_mounts(desired)


def _given_secrets(desired: Desired) -> list[tuple[str, str, str]]:
    """Return volumes for ZooKeeper and for the bucket: name, folder, Secret."""
    external, found = desired.spec.zookeeper.external, []
    tiered = desired.spec.brokers.tiered_storage
    if tiered is not None and tiered.credentials_secret_name is not None:
        found.append(("bucket", BUCKET_FOLDER, tiered.credentials_secret_name))
    if external is not None and external.tls is not None:
        found.append(("zookeeper-tls", ZOOKEEPER_TLS_FOLDER, external.tls.secret_name))
    if external is not None and external.auth is not None:
        found.append(("zookeeper-user", ZOOKEEPER_USER_FOLDER, external.auth.secret_name))
    if desired.registry_over_tls:
        found.append(
            ("zookeeper-tls", ZOOKEEPER_TLS_FOLDER, names.zookeeper_certificate(desired.name))
        )
    if desired.registry_access is not RegistryAccess.NONE:
        user = names.registry_user(desired.name)
        found.append(("zookeeper-user", ZOOKEEPER_USER_FOLDER, user))
    return found


def has_certificate(pod: Mapping[str, Any]) -> bool:
    """Whether a pod, or what is made of a template, has the files of its shard's certificate."""
    return any(volume.get("name") == TLS for volume in pod.get("spec", {}).get("volumes") or ())


def _account() -> Manifest:
    """Return the volume with the pod's own token, which the kubelet replaces, and whom to trust.

    It is the API server's: brokers ask it whose tokens are, and may do nothing else with it.
    """
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    token = {"path": "token", "expirationSeconds": 3600}
    sources = [{"serviceAccountToken": token}, {"configMap": authority}]
    return {"name": ACCOUNT, "projected": {"defaultMode": 0o440, "sources": sources}}


def _volumes(desired: Desired, shard: int, config: str) -> list[Manifest]:
    found: list[Manifest] = [
        {"name": CONFIG, "configMap": {"name": config}},
        {
            "name": "token",
            "secret": {"secretName": names.token(desired.name), "defaultMode": 0o440},
        },
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    if desired.spec.tls is not None:
        # A folder, not single files: it follows the Secret, and brokers read it again.
        name = names.certificate(desired.name, shard)
        found.append({"name": TLS, "secret": {"secretName": name, "defaultMode": 0o440}})
    if named := clients_ca_secret(desired):
        only = [{"key": "ca.crt", "path": "ca.crt"}]
        content = {"secretName": named, "defaultMode": 0o440, "items": only}
        found.append({"name": CLIENTS_CA, "secret": content})
    if desired.spec.authorization.token_review:
        found.append(_account())
    if learns_hosts(desired.spec):
        named = names.listeners(desired.name)
        found.append({"name": LISTENERS, "configMap": {"name": named, "optional": True}})
    for name, _, secret in _given_secrets(desired):
        content = {"secretName": secret, "defaultMode": 0o440}
        if secret == names.zookeeper_certificate(desired.name):
            # Its key is for the servers alone.
            content["items"] = [{"key": "ca.crt", "path": "ca.crt"}]
        found.append({"name": name, "secret": content})
    found += recovering.volumes(desired)
    if desired.spec.brokers.storage.type is StorageType.EPHEMERAL:
        size = desired.spec.brokers.storage.size
        limit = {"sizeLimit": size.text} if size else {}
        found.append({"name": "data", "emptyDir": limit})
    return found


def _claim(desired: Desired, shard: int) -> Manifest:
    storage = desired.spec.brokers.storage
    assert storage.size is not None
    extra = desired.spec.brokers.template.persistent_volume_claim.metadata
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size.text}},
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    if storage.volume_attributes_class_name is not None:
        spec["volumeAttributesClassName"] = storage.volume_attributes_class_name
    metadata = {
        "name": "data",
        "labels": {**extra.labels, **selector(desired, names.BROKER, shard)},
    }
    if extra.annotations:
        metadata["annotations"] = dict(extra.annotations)
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _affinity(desired: Desired, shard: int) -> Manifest:
    """Keep members of one shard off each other's nodes."""
    term = {
        "labelSelector": {"matchLabels": selector(desired, names.BROKER, shard)},
        "topologyKey": "kubernetes.io/hostname",
    }
    placement = desired.spec.brokers.anti_affinity
    if placement is AntiAffinity.NONE:
        return {}
    if placement is AntiAffinity.REQUIRED:
        rule: Manifest = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    else:
        weighed = {"weight": 100, "podAffinityTerm": term}
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": [weighed]}
    return {"podAntiAffinity": rule}


def _spread(desired: Desired, shard: int) -> list[Manifest]:
    """Spread members of one shard over racks, as far as there are any."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": desired.spec.brokers.rack.topology_key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(desired, names.BROKER, shard)},
        }
    ]
