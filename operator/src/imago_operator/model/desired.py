"""What a cluster is to be: the resource with every default resolved."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from imago_operator.broker_rules.keys import KEYS, Scalar
from imago_operator.errors import InvalidError
from imago_operator.model import names, versions
from imago_operator.model.broker_settings import check_together, settings_of
from imago_operator.model.listeners import told_to_pods
from imago_operator.model.podfiles import pod_settings
from imago_operator.spec.cluster.cluster import AuthorizationType
from imago_operator.spec.cluster.tls import Tls
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryAccess, RegistryTls
from imago_operator.spec.kinds import CLUSTER
from imago_operator.spec.schema.common import AcknowledgementLevel
from imago_operator.spec.schema.fields import chosen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.spec.cluster.backups import Recovery
    from imago_operator.spec.cluster.brokers import ShardPool
    from imago_operator.spec.cluster.cluster import ClusterSpec

ZOOKEEPER_PORT: Final = 2181
ZOOKEEPER_TLS_PORT: Final = 2281
REGISTRY_USER: Final = "imago"
"""The brokers' user in a managed ZooKeeper."""
HASH_SIZE: Final = 16
OF_NO_POD: Final = frozenset(
    {
        *("shards", "replicasPerShard", "removeShards", "minInSync", "acknowledgement"),
        *("replication", "shardPools"),
    }
)
"""What is said of brokers that no pod of theirs depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorInfo:
    """What the operator brings along."""

    version: str
    broker_image: str = "imago/broker"
    zookeeper_image: str = "zookeeper:3.9"
    spark_image: str = "imago/spark-apps"
    namespace: str = "imago-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerResource:
    """The object itself: who it is, and what its annotations order."""

    name: str
    namespace: str
    uid: str
    generation: int = 1
    deleting: bool = False
    annotations: Mapping[str, str]
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Its spec as it was written."""
    recovered: bool = False
    """Whether every shard has begun with the backup that the spec names."""

    @property
    def paused(self) -> bool:
        return self.annotations.get(names.PAUSE) == "true"

    @property
    def restart(self) -> str:
        """Any value orders a restart; the same value orders nothing new."""
        return self.annotations.get(names.RESTART, "")

    @property
    def approved(self) -> str:
        """Id of what a person has approved."""
        return self.annotations.get(names.APPROVE, "")

    @property
    def fenced(self) -> tuple[str, ...]:
        """What is to be fenced, as somebody wrote it."""
        said = self.annotations.get(names.FENCED, "").replace(",", " ")
        return tuple(dict.fromkeys(said.split()))

    @property
    def allow_data_loss(self) -> str:
        """Id of the shard that may elect a member which lacks acknowledged messages."""
        return self.annotations.get(names.ALLOW_DATA_LOSS, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableSpec:
    """A resource whose spec is wrong: brokers go on with what they have."""

    resource: OwnerResource
    problem: str
    reason: str = "InvalidSpec"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Desired:
    """A cluster as it is to be. One reading of a resource: equal to itself alone."""

    resource: OwnerResource
    operator: OperatorInfo
    spec: ClusterSpec
    version: str
    image: str
    acknowledgement: AcknowledgementLevel
    min_in_sync: int
    zookeeper_connect: str
    registry_access: RegistryAccess
    """Who may change the brokers' nodes in a managed ZooKeeper, for now."""
    registry_tls: RegistryTls
    """Which client ports the servers of a managed ZooKeeper have, for now."""
    registry_over_tls: bool
    """Whether brokers use the one with TLS, for now."""
    quorum_tls: QuorumTls
    """How those servers meet each other, for now."""
    servers_step: str
    """What is ordered of those servers on the way to what the spec says; empty: that itself."""
    settings: Mapping[str, Scalar]
    """Content of the brokers' file: nothing that is only a default, for a broker of another
    version may not know it."""
    of_pods: Mapping[str, Scalar]
    """What each pod is told by itself, since it names files that pods made before it lack."""
    static: Mapping[str, Scalar]
    """Those of both that need a restart."""
    dynamic: Mapping[str, Scalar]
    """Settings that may change while they run: every one of them, also by its default."""
    spec_hash: str
    """Fingerprint of all that the user said about pods; the operator's version is not in it."""
    config_hash: str
    """Fingerprint of `static`."""
    replicas: int
    """Members of each shard."""
    members_there: int
    """The most that a shard has: more than these while members leave."""
    recovers: bool = False
    """Whether members that have no data begin with the backup that the spec names."""
    changes_members: bool = False
    """Whether brokers count on fewer members for now than the spec says, or have more."""
    problem: UnreadableSpec | None = None
    """What is wrong with the spec of today: this is what the cluster is kept as meanwhile."""
    observed_only: bool = False
    """Whether nothing is to be done by it: it says no more than what there may be to observe."""

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def namespace(self) -> str:
        return self.resource.namespace

    def pool(self, shard: int) -> ShardPool | None:
        """Return the nodes that a shard's members are for; None: those of all."""
        return next((p for p in self.spec.brokers.shard_pools if shard in p.shards), None)

    def node_selector(self, shard: int) -> dict[str, str]:
        """Return the labels of the nodes that a shard's members may be on."""
        pool, of_all = self.pool(shard), self.spec.brokers.template.pod.node_selector
        return {**of_all, **(pool.node_selector if pool else {})}

    @property
    def storage_bytes(self) -> int | None:
        size = self.spec.brokers.storage.size
        return None if size is None else size.bytes


def resource_of(manifest: Mapping[str, Any]) -> OwnerResource:
    """Return who an object is."""
    metadata = manifest["metadata"]
    return OwnerResource(
        name=metadata["name"],
        namespace=metadata.get("namespace", "default"),
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 1),
        deleting="deletionTimestamp" in metadata,
        annotations=dict(metadata.get("annotations") or {}),
        spec=manifest.get("spec") or {},
        recovered=bool((manifest.get("status") or {}).get("recoveredFrom")),
    )


def desired_of(
    manifest: Mapping[str, Any], operator: OperatorInfo, *, any_version: bool = False
) -> Desired | UnreadableSpec:
    """Return what an ImagoCluster says, or what is wrong with it.

    `any_version`: also where the operator does not run the version, to know what to observe.
    """
    resource = resource_of(manifest)
    try:
        spec = CLUSTER.read(manifest)
        problem = versions.refusal(spec.version or operator.version, operator.version)
        if problem and not any_version:
            text = f"spec.version: {problem}"
            return UnreadableSpec(resource=resource, problem=text, reason="UnsupportedVersion")
        return _desired(resource, spec, operator)
    except InvalidError as error:
        return UnreadableSpec(resource=resource, problem=str(error))


def with_spec(desired: Desired, spec: ClusterSpec) -> Desired:
    """Return the cluster as another spec has it."""
    made = _desired(desired.resource, spec, desired.operator)
    return replace(made, problem=desired.problem, observed_only=desired.observed_only)


def _desired(resource: OwnerResource, spec: ClusterSpec, operator: OperatorInfo) -> Desired:
    version = spec.version or operator.version
    brokers, several = spec.brokers, spec.brokers.replicas_per_shard > 1
    level = brokers.acknowledgement or (
        AcknowledgementLevel.REPLICATED if several else AcknowledgementLevel.LEADER
    )
    least = brokers.min_in_sync or (2 if several else 1)
    connect = zookeeper_connect(resource, spec)
    settings = settings_of(brokers.config) | {
        "broker.cluster": resource.name,
        "broker.replicas": brokers.replicas_per_shard,
        "broker.data_dir": "/data",
        "broker.bind": "0.0.0.0",  # noqa: S104  a pod's clients are in other pods
        "zookeeper.connect": connect,
        "admin.token_file": "/etc/imago/token/token",
        "acknowledgement.level": level.value,
        "acknowledgement.timeout_ms": round(brokers.replication.ack_timeout.seconds * 1000),
        "replication.min_in_sync": least,
        "log.level": spec.logging.level,
    }
    if spec.authorization.type is AuthorizationType.SIMPLE:
        settings["acl.enabled"] = True
    of_pods = pod_settings(spec, settings)
    settings = {name: said for name, said in settings.items() if name not in of_pods}
    both = settings | of_pods
    check_together(spec, both)
    static = {name: value for name, value in both.items() if not KEYS[name].dynamic}
    defaults = {name: key.default for name, key in KEYS.items() if key.dynamic}
    dynamic = {name: both.get(name, default) for name, default in defaults.items()}
    return Desired(
        resource=resource,
        operator=operator,
        spec=spec,
        version=version,
        image=spec.image or f"{operator.broker_image}:{version}",
        acknowledgement=level,
        min_in_sync=least,
        zookeeper_connect=connect,
        registry_access=registry_access(spec, version),
        registry_tls=registry_tls(spec, version),
        registry_over_tls=registry_tls(spec, version) is not RegistryTls.NONE,
        quorum_tls=quorum_tls(spec, version),
        servers_step="",
        settings=settings,
        of_pods=of_pods,
        static=static,
        dynamic=dynamic,
        replicas=brokers.replicas_per_shard,
        members_there=brokers.replicas_per_shard,
        recovers=recovery_of(spec) is not None and not resource.recovered,
        spec_hash=fingerprint(said_of_pods(resource, spec)),
        config_hash=fingerprint(static),
    )


def recovery_of(spec: ClusterSpec) -> Recovery | None:
    """Return the backup that a cluster begins with."""
    return None if spec.bootstrap is None else spec.bootstrap.recovery


def clients_ca_secret(desired: Desired) -> str:
    """Return the Secret with the authority that signs for clients; empty: nobody does."""
    ca = desired.spec.tls.clients_ca if desired.spec.tls is not None else None
    return "" if ca is None else ca.secret_name or names.clients_authority(desired.name)


def registry_access(spec: ClusterSpec, version: str) -> RegistryAccess:
    """Return what a spec says of the user that brokers of a version have in a managed ZooKeeper."""
    managed = spec.zookeeper.managed
    if managed is None or not versions.has_registry_user(version):
        return RegistryAccess.NONE
    return managed.authentication


def registry_tls(spec: ClusterSpec, version: str) -> RegistryTls:
    """Return what a spec says of TLS to a managed ZooKeeper, for brokers of a version."""
    managed = spec.zookeeper.managed
    if managed is None or not versions.has_registry_user(version):
        return RegistryTls.NONE
    return managed.tls


def quorum_tls(spec: ClusterSpec, version: str) -> QuorumTls:
    """Return how servers of a managed ZooKeeper meet: with TLS where there is any.

    One that is alone is told the same: others may join it.
    """
    if spec.zookeeper.managed is None:
        return QuorumTls.NONE
    there = registry_tls(spec, version) is not RegistryTls.NONE
    return QuorumTls.ENFORCING if there else QuorumTls.NONE


def signing(desired: Desired) -> Tls | None:
    """Return how certificates of the cluster are signed; None: it is to have none."""
    if desired.spec.tls is None and registry_tls(desired.spec, desired.version) is RegistryTls.NONE:
        return None
    return desired.spec.tls or Tls()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySteps:
    """How brokers and the servers of a managed ZooKeeper meet, and these each other, for now."""

    access: RegistryAccess
    tls: RegistryTls
    over_tls: bool
    quorum: QuorumTls

    @classmethod
    def said(cls, desired: Desired) -> RegistrySteps:
        """Return what the spec says."""
        tls = registry_tls(desired.spec, desired.version)
        access = registry_access(desired.spec, desired.version)
        quorum = quorum_tls(desired.spec, desired.version)
        return cls(access=access, tls=tls, over_tls=tls is not RegistryTls.NONE, quorum=quorum)


def with_registry_steps(
    desired: Desired, steps: RegistrySteps, *, ordered: bool, ordered_servers: bool
) -> Desired:
    """Return the cluster on its way to what its spec says of ZooKeeper.

    Where somebody has ordered it, each step towards it is his; else the operator brings it.
    """
    said, spec_hash = RegistrySteps.said(desired), desired.spec_hash
    if ordered and (steps.access, steps.over_tls) != (said.access, said.over_tls):
        spec_hash = fingerprint([spec_hash, steps.access.value, steps.over_tls])
    on_the_way = (steps.tls, steps.quorum) != (said.tls, said.quorum)
    step = f"{steps.tls.value}, {steps.quorum.value}" if ordered_servers and on_the_way else ""
    return replace(
        desired,
        registry_access=steps.access,
        registry_tls=steps.tls,
        registry_over_tls=steps.over_tls,
        quorum_tls=steps.quorum,
        servers_step=step,
        spec_hash=spec_hash,
    )


def said_of_pods(resource: OwnerResource, spec: ClusterSpec) -> dict[str, Any]:
    """Return what the user said that pods depend on; what only a restart applies among it."""
    said = chosen(spec)
    brokers = {name: part for name, part in said["brokers"].items() if name not in OF_NO_POD}
    # A claim is no part of a pod; room for what is not kept is.
    storage = brokers.get("storage", {})
    brokers["storage"] = storage if storage.get("type") == "Ephemeral" else {}
    template = brokers.get("template", {})
    brokers["template"] = {
        name: template[name] for name in ("pod", "container") if name in template
    }
    brokers["config"] = {
        name: value for name, value in brokers.get("config", {}).items() if not KEYS[name].dynamic
    }
    images = ("version", "image", "imagePullPolicy", "imagePullSecrets")
    of_pods = (*images, "listeners", "logging", "backup")
    found = {name: said[name] for name in of_pods if name in said}
    found |= {"listeners": told_to_pods(said["listeners"])} if "listeners" in said else {}
    if spec.authorization.type is not AuthorizationType.NONE:
        found["authorization"] = spec.authorization.type.value
    if spec.authorization.token_review:
        found["tokenReview"] = True
    if spec.tls is not None:
        # Not how long certificates are valid: files change, and pods stay.
        found["tls"] = {"clients": spec.tls.clients.value, "members": spec.tls.members.value}
        if (ca := spec.tls.clients_ca) is not None:
            found["tls"]["clientsCa"] = ca.secret_name or ca.mode.value
    managed = spec.zookeeper.managed
    if managed is not None and managed.authentication is not RegistryAccess.ENFORCING:
        found["registryAccess"] = managed.authentication.value
    if managed is not None and managed.tls is RegistryTls.NONE:
        found["registryTls"] = managed.tls.value
    external = said.get("zookeeper", {}).get("external", {})
    if secured := {name: external[name] for name in ("tls", "auth") if name in external}:
        found["zookeeper"] = secured
    return found | {"brokers": brokers, "restart": resource.restart}


def zookeeper_for_clients(resource: OwnerResource, spec: ClusterSpec) -> str:
    """Return what MetaQ's clients write as their ZooKeeper; empty: it has no plain port."""
    managed, external = spec.zookeeper.managed, spec.zookeeper.external
    if managed is not None and managed.tls is RegistryTls.ENFORCING:
        return ""
    if external is not None and external.client_servers:
        return ",".join(external.client_servers) + external.chroot
    return zookeeper_connect(resource, spec)


def zookeeper_connect(resource: OwnerResource, spec: ClusterSpec) -> str:
    """Return what brokers write as their ZooKeeper."""
    if external := spec.zookeeper.external:
        return ",".join(external.servers) + external.chroot
    return f"{names.zookeeper(resource.name)}.{resource.namespace}.svc:{ZOOKEEPER_PORT}"


def fingerprint(value: Any) -> str:
    """Return a short hash of a value of JSON, the same for equal values."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_SIZE]
