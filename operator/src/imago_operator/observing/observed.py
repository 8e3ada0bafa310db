"""One look at everything that belongs to a cluster: Kubernetes' objects, and what brokers say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from imago_operator.brokers.reach import addresses, certificate_secret, is_ready
from imago_operator.contents.belonging import cluster_of
from imago_operator.errors import BlockedError
from imago_operator.manifests.certmanager import CERTIFICATE, is_asked
from imago_operator.manifests.config import config_of
from imago_operator.manifests.environment import is_over_tls, ports_of_pod, registry_access_of
from imago_operator.manifests.zookeeper import quorum_of_servers, tls_of_servers
from imago_operator.model import names
from imago_operator.model.state import (
    STATEFUL_SET,
    Observed,
    OwnedObject,
    Pod,
    TopicNeeds,
)
from imago_operator.observing.authorities import certificates
from imago_operator.observing.drifts import Drifts
from imago_operator.observing.podstatus import failure, missing_image, turned, unscheduled, waiting
from imago_operator.observing.revisions import Revisions
from imago_operator.observing.windows import is_open
from imago_operator.plan.drift import managed_of
from imago_operator.plan.objects import REBALANCE
from imago_operator.spec.cluster.cluster import UpdateMode
from imago_operator.spec.cluster.cluster_status import ClusterStatus
from imago_operator.spec.cluster.zookeeper import RegistryAccess, RegistryTls
from imago_operator.spec.kinds import CLUSTER
from imago_operator.spec.schema.build import build
from imago_operator.spec.schema.schema import with_defaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from imago_operator.certificates.state import SeenCertificates
    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Probe, RegistryView, RemainingContent
    from imago_operator.observing.volumes import Volumes
    from imago_operator.reconcile import Context, Reached

CHILD_KINDS: Final = (
    STATEFUL_SET,
    "ConfigMap",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Service",
    "ServiceAccount",
    REBALANCE,
)
Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSeen:
    """What was seen, and how to reach whom."""

    observed: Observed
    reached: Reached
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Base addresses of brokers, by pod."""


class Observer:
    """Observes clusters."""

    def __init__(self, context: Context, volumes: Volumes) -> None:
        self._context, self._volumes = context, volumes
        self._revisions = Revisions(context.kube)
        self.drifts = Drifts(context.now)

    async def look(self, desired: Desired, manifest: Manifest) -> ClusterSeen:
        """Return what belongs to a cluster. RetryError: something could not be read."""
        kinds: tuple[str, ...] = (*CHILD_KINDS, "Pod", "PersistentVolumeClaim")
        if is_asked(desired):
            kinds = (*kinds, CERTIFICATE)
        lists, secret = await asyncio.gather(
            asyncio.gather(*(self._list(kind, desired) for kind in kinds)),
            self._context.kube.get("Secret", desired.namespace, names.token(desired.name)),
        )
        found = dict(zip(kinds, lists, strict=True))
        children = tuple(_children(desired, found, secret, self.drifts))
        objects = pods_of(desired, children, found["Pod"])
        reached = await self._context.brokers.of_pods(
            desired.namespace,
            desired.name,
            [o for o in objects if shard_of(o, desired) is not None],
        )
        urls = addresses(objects)
        registry_user, registry, probes = await asyncio.gather(
            self._registry_user(desired, children),
            reached.admin.registry(reached.brokers),
            self._probes(desired, reached, objects, urls),
        )
        edited = await self._revisions.edited(children, objects)
        claims = found["PersistentVolumeClaim"]
        window = _window(desired, self._context)
        certificates, refused = await self._certificates(desired, children)
        observed = Observed(
            synced=True,
            children=children,
            pods=tuple(
                replace(pod, edited=pod.name in edited)
                for pod in (pod_of(o, desired, probes.get(o["metadata"]["name"])) for o in objects)
            ),
            claims=await self._volumes.claims(desired, claims, objects),
            server_claims=self._volumes.of_servers(desired, claims),
            nodes=await self._volumes.nodes(desired),
            expandable=await self._volumes.expandable(claims),
            storage_classes=await self._volumes.classes(),
            registry=registry,
            remaining=await self._remaining(reached, registry),
            topics=await self._topics(desired, children),
            kept_empty=await self._kept_empty(desired, registry),
            registry_user=registry_user,
            registry_user_refused=registry_user is None and asks_for_user(desired),
            window_open=window[0],
            window_problem=window[1],
            certificates=certificates,
            registry_tls_refused=refused,
            status=status_of_manifest(manifest),
        )
        return ClusterSeen(observed=observed, reached=reached, addresses=urls)

    async def _certificates(
        self, desired: Desired, children: Iterable[OwnedObject]
    ) -> tuple[SeenCertificates | None, bool]:
        """Return authority and certificates, and whether those of ZooKeeper must not be read.

        None: there are to be none. An operator that is confined to Secrets by name goes on
        without those of ZooKeeper.
        """
        sets = {c.shard for c in children if c.kind == STATEFUL_SET and c.shard is not None}
        shards = sorted({*sets, *range(desired.spec.brokers.shards)})
        kube, namespaces = self._context.kube, self._context.namespaces
        try:
            return await certificates(kube, desired, shards, namespaces), False
        except BlockedError:
            if desired.registry_tls is RegistryTls.NONE:
                raise
        if desired.spec.tls is None:
            return None, True
        without = replace(desired, registry_tls=RegistryTls.NONE)
        return await certificates(kube, without, shards, namespaces), True

    async def _registry_user(
        self, desired: Desired, children: Iterable[OwnedObject]
    ) -> bool | None:
        """Return whether there is a Secret of the brokers' user; None: nobody asks, or may not.

        An operator that is confined to Secrets by name goes on without this one.
        """
        if not (asks_for_user(desired) or any(map(has_user, children))):
            return None
        name = names.registry_user(desired.name)
        with suppress(BlockedError):
            return await self._context.kube.get("Secret", desired.namespace, name) is not None
        return None

    async def _list(self, kind: str, desired: Desired) -> Sequence[Manifest]:
        labels = f"{names.CLUSTER_LABEL}={desired.name}"
        return await self._context.kube.list(kind, desired.namespace, labels=labels)

    async def _probes(
        self,
        desired: Desired,
        reached: Reached,
        objects: Sequence[Manifest],
        urls: Mapping[str, str],
    ) -> dict[str, Probe]:
        """Return what brokers say, by pod; who does not answer, or is another's, is left out."""
        shards = {o["metadata"]["name"]: shard_of(o, desired) for o in objects}
        asked = [pod for pod, shard in shards.items() if shard is not None and pod in urls]
        said = await asyncio.gather(*(reached.admin.probe(urls[pod]) for pod in asked))
        pairs = zip(asked, said, strict=True)
        return {pod: probe for pod, probe in pairs if probe and probe.shard == shards[pod]}

    async def _remaining(
        self, reached: Reached, registry: RegistryView | None
    ) -> dict[int, RemainingContent]:
        shards = registry.shards.values() if registry else ()
        closed = [s.id for s in shards if s.cordoned and not s.drained]
        said = await asyncio.gather(*(reached.admin.remaining(reached.brokers, n) for n in closed))
        return {shard: left for shard, left in zip(closed, said, strict=True) if left is not None}

    async def _topics(
        self, desired: Desired, children: Iterable[OwnedObject]
    ) -> tuple[TopicNeeds, ...]:
        """Return what topics ask of shards; only looked up while shards are to go."""
        sets = [c for c in children if c.kind == STATEFUL_SET and c.shard is not None]
        if len(sets) <= desired.spec.brokers.shards:
            return ()
        lists = await asyncio.gather(
            *(
                self._context.kube.list("ImagoTopic", namespace)
                for namespace in self._context.namespaces
            )
        )
        return tuple(topic for items in lists for item in items if (topic := _needs(item, desired)))

    async def _kept_empty(self, desired: Desired, registry: RegistryView | None) -> frozenset[int]:
        """Return the shards that a person's rebalance empties; looked up where one is drained."""
        if registry is None or not any(shard.drained for shard in registry.shards.values()):
            return frozenset()
        lists = await asyncio.gather(
            *(self._context.kube.list(REBALANCE, where) for where in self._context.namespaces)
        )
        found = (shards_emptied(item, desired) for items in lists for item in items)
        return frozenset(shard for shards in found for shard in shards)


def asks_for_user(desired: Desired) -> bool:
    """Whether brokers are to be a user of a managed ZooKeeper."""
    return desired.registry_access is not RegistryAccess.NONE


def has_user(child: OwnedObject) -> bool:
    """Whether brokers of a set are such a user, though the cluster is to have none by now."""
    if child.kind != STATEFUL_SET or child.shard is None:
        return False
    return registry_access_of(child.template) is not RegistryAccess.NONE


def shards_emptied(item: Manifest, desired: Desired) -> tuple[int, ...]:
    """Return the shards of a cluster that an ImagoRebalance of somebody else empties."""
    spec, gone = item["spec"], "deletionTimestamp" in item["metadata"]
    ended = (item.get("status") or {}).get("phase") == "Failed"
    mine = cluster_of(item) == (desired.namespace, desired.name)
    if gone or ended or not mine or owner_uid(item) == desired.resource.uid:
        return ()
    return tuple(spec.get("shards") or ()) if spec.get("mode") in ("Drain", "Seal") else ()


def _window(desired: Desired, context: Context) -> tuple[bool, str]:
    """Return whether pods may be restarted by now's time, and what is wrong with the windows."""
    policy = desired.spec.update_policy
    if policy.mode is not UpdateMode.WINDOW:
        return True, ""
    return is_open(policy.windows, context.now())


def status_of_manifest(manifest: Manifest) -> ClusterStatus:
    """Return the status that an ImagoCluster has: the operator's memory."""
    said = with_defaults(CLUSTER.status_schema, manifest.get("status") or {})
    return build(ClusterStatus, said)


def _children(
    desired: Desired,
    found: Mapping[str, Sequence[Manifest]],
    secret: Manifest | None,
    drifts: Drifts,
) -> Iterable[OwnedObject]:
    for kind in (*CHILD_KINDS, CERTIFICATE):
        for item in found.get(kind, ()):
            if owner_uid(item) == desired.resource.uid:
                yield _child(kind, item, drifts)
    # A token that somebody else has put there is as good as ours.
    if secret is not None and owner_uid(secret) in (None, desired.resource.uid):
        yield _child("Secret", secret)


def owner_uid(item: Manifest) -> str | None:
    """Return the uid of what an object belongs to."""
    references = item["metadata"].get("ownerReferences") or ()
    return next((str(r["uid"]) for r in references if r.get("controller")), None)


def _child(kind: str, item: Manifest, drifts: Drifts | None = None) -> OwnedObject:
    metadata = item["metadata"]
    uid = metadata["uid"]
    shard = (metadata.get("labels") or {}).get(names.SHARD_LABEL)
    return OwnedObject(
        kind=kind,
        name=metadata["name"],
        uid=uid,
        annotations=dict(metadata.get("annotations") or {}),
        shard=int(shard) if shard is not None else None,
        replicas=item.get("spec", {}).get("replicas") if kind == STATEFUL_SET else None,
        deleting="deletionTimestamp" in metadata,
        managed=managed_of(item),
        live=item,
        spared=drifts.spared(uid) if drifts else frozenset(),
        contested=drifts.contested(uid) if drifts else frozenset(),
    )


def pods_of(
    desired: Desired, children: Iterable[OwnedObject], items: Iterable[Manifest]
) -> list[Manifest]:
    """Return the pods of the cluster's StatefulSets, by owner and name.

    Those without an owner are included: their StatefulSet is being made anew.
    """
    sets = {child.name: child.uid for child in children if child.kind == STATEFUL_SET}
    found = []
    for item in items:
        owner, name = owner_uid(item), item["metadata"]["name"].rpartition("-")[0]
        mine = owner == sets.get(name) if owner is not None else _is_set(name, desired)
        if mine and item["metadata"]["name"].rpartition("-")[2].isdecimal():
            found.append(item)
    return found


def _is_set(name: str, desired: Desired) -> bool:
    return name == names.zookeeper(desired.name) or shard_of_set(name, desired) is not None


def shard_of_set(name: str, desired: Desired) -> int | None:
    """Return the shard that a StatefulSet of this name is; None: it is none."""
    found = re.fullmatch(rf"{re.escape(desired.name)}-s([0-9]+)", name)
    return int(found[1]) if found else None


def shard_of(item: Manifest, desired: Desired) -> int | None:
    """Return the shard of a pod, by its name; None: a server of ZooKeeper."""
    return shard_of_set(item["metadata"]["name"].rpartition("-")[0], desired)


def pod_of(item: Manifest, desired: Desired, probe: Probe | None) -> Pod:
    """Return a pod as the planner sees it."""
    metadata, spec = item["metadata"], item.get("spec", {})
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        shard=shard_of(item, desired),
        ordinal=int(metadata["name"].rpartition("-")[2]),
        annotations=dict(metadata.get("annotations") or {}),
        node=spec.get("nodeName"),
        host=str(item.get("status", {}).get("hostIP") or ""),
        ready=is_ready(item),
        deleting="deletionTimestamp" in metadata,
        turned=turned(item.get("status", {})),
        waiting=waiting(item.get("status", {})),
        unscheduled=unscheduled(item.get("status", {})),
        missing_image=missing_image(item),
        failure="" if is_ready(item) else failure(item.get("status", {})),
        role_label=(metadata.get("labels") or {}).get(names.ROLE_LABEL),
        broker=probe,
        config=config_of(item) if shard_of(item, desired) is not None else "",
        certified=bool(certificate_secret(item)),
        ports=ports_of_pod(item),
        registry_access=registry_access_of(item),
        registry_over_tls=is_over_tls(item),
        registry_tls=tls_of_servers(item),
        quorum_tls=quorum_of_servers(item),
    )


def _needs(item: Manifest, desired: Desired) -> TopicNeeds | None:
    """Return what a topic asks of shards; None: it is not one of the cluster, or goes."""
    spec, metadata = item.get("spec", {}), item["metadata"]
    reference = spec.get("clusterRef", {})
    where = reference.get("namespace") or metadata["namespace"]
    if (where, reference.get("name")) != (desired.namespace, desired.name):
        return None
    if "deletionTimestamp" in metadata:
        return None
    placement = spec.get("placement") or {}
    return TopicNeeds(
        name=spec.get("topicName") or metadata["name"],
        count=placement.get("count"),
        shard_ids=tuple(placement.get("shardIds") or ()),
    )
