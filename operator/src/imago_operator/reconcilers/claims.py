"""What reconcilers of topics, groups and rebalances have in common: look up, hold, let go, say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.belonging import (
    FINALIZER,
    Claimant,
    allows,
    claimant_of,
    cluster_of,
    refusal,
)
from imago_operator.contents.conditions import ContentRefusal, changes
from imago_operator.errors import BlockedError, InvalidError, RetryError
from imago_operator.observing.installations import Installations
from imago_operator.reconcilers.recent import Recent
from imago_operator.spec.kinds import API_VERSION
from imago_operator.spec.schema.build import build
from imago_operator.spec.schema.fields import to_json
from imago_operator.spec.schema.schema import with_defaults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence
    from datetime import datetime

    from imago_operator.contents.belonging import Manifest, Place
    from imago_operator.contents.claiming import ClaimPlan
    from imago_operator.contents.leaving import Leaving
    from imago_operator.reconcile import Context, Reached
    from imago_operator.spec.kinds import Kind
    from imago_operator.spec.schema.common import Conditions

SHARED_S: Final = 5.0
"""How old what many keys share may be. What is to go with its resource is asked for anew."""
LABELS_S: Final = 60.0
SELECTOR: Final = "Selector"


@dataclass(frozen=True, slots=True)
class Index:
    """All resources of a kind, by cluster and by the topic, group or user that they are about."""

    by_content: Mapping[tuple[Place, str], Sequence[Claimant]]
    manifests: Sequence[Manifest]
    uids: frozenset[str] = field(default_factory=frozenset)


class ClaimLookup:
    """What is looked up for many objects at a time."""

    def __init__(self, context: Context) -> None:
        self._context, now = context, context.now
        self._clusters: Recent[Place, Manifest | None] = Recent(now, age_s=SHARED_S)
        self._reached: Recent[Place, Reached] = Recent(now, age_s=SHARED_S)
        self._labels: Recent[str, Mapping[str, Mapping[str, str]]] = Recent(now, age_s=LABELS_S)
        self._siblings: Recent[str, tuple[str, ...]] = Recent(now, age_s=LABELS_S)
        self._indexes: Recent[str, Index] = Recent(now, age_s=SHARED_S)
        self._elsewhere: Recent[Place, str | None] = Recent(now, age_s=SHARED_S)
        self._installations = Installations(context)

    def _since(self, manifest: Manifest) -> datetime | None:
        """Return from when on answers count: what a deletion takes away rests on none of before."""
        me = claimant_of(manifest)
        return self._context.now() if me.deleting and me.held else None

    async def cluster(self, place: Place, since: datetime | None = None) -> Manifest | None:
        """Return an ImagoCluster, None where there is none."""
        if not place[1]:
            return None
        kube = self._context.kube
        return await self._clusters.get(
            place, lambda: kube.get("ImagoCluster", *place), after=since
        )

    async def elsewhere(self, manifest: Manifest) -> str | None:
        """Return why another installation looks after an object's cluster; None: we do."""
        place = cluster_of(manifest)
        cluster = await self.cluster(place)
        if cluster is None:
            return None
        return await self._elsewhere.get(place, lambda: self._installations.other(cluster))

    async def reached(self, place: Place) -> Reached:
        """Return how a cluster's brokers are reached."""
        return await self._reached.get(place, lambda: self._context.brokers(*place))

    async def labels(
        self, namespace: str, since: datetime | None = None
    ) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None where the operator may not look."""

        async def ask() -> Mapping[str, Mapping[str, str]]:
            try:
                found = await self._context.kube.list("Namespace", "")
            except BlockedError:
                return {}
            return {o["metadata"]["name"]: o["metadata"].get("labels") or {} for o in found}

        return (await self._labels.get("", ask, after=since)).get(namespace)

    async def refusal(self, manifest: Manifest, reference: Any) -> ContentRefusal | None:
        """Return why an object has no cluster that it may use; None: it has."""
        namespace = manifest["metadata"].get("namespace", "default")
        since = self._since(manifest)
        cluster = await self.cluster(cluster_of(manifest), since)
        labels = await self._selected(cluster, namespace, since)
        own = cluster is None and cluster_of(manifest)[0] == namespace
        known = await self._siblings.get(namespace, lambda: self._names(namespace)) if own else ()
        return refusal(cluster, reference, namespace, labels, known)

    async def _names(self, namespace: str) -> tuple[str, ...]:
        """Return the clusters of a namespace, as far as the operator may look."""
        try:
            found = await self._context.kube.list("ImagoCluster", namespace)
        except BlockedError:
            return ()
        return tuple(one["metadata"]["name"] for one in found)

    async def _selected(
        self, cluster: Manifest | None, namespace: str, since: datetime | None
    ) -> Mapping[str, str] | None:
        said = (cluster or {}).get("spec", {}).get("allowedNamespaces") or {}
        return await self.labels(namespace, since) if said.get("from") == SELECTOR else None

    async def index(
        self, kind: Kind[Any], *, uid: str = "", since: datetime | None = None
    ) -> Index:
        """Return all resources of a kind; `uid`: one that must be among them."""
        name = _content_field(kind)

        async def ask() -> Index:
            kube, places = self._context.kube, self._context.namespaces
            found = [one for place in places for one in await kube.list(kind.name, place)]
            by_content: dict[tuple[Place, str], list[Claimant]] = {}
            for one in found:
                about = (cluster_of(one), content_name(one, name))
                by_content.setdefault(about, []).append(claimant_of(one))
            return Index(by_content, found, frozenset(str(one["metadata"]["uid"]) for one in found))

        return await self._indexes.get(
            kind.name, ask, after=since, fits=lambda i: not uid or uid in i.uids
        )

    async def rivals(
        self, kind: Kind[Any], me: Claimant, manifest: Manifest
    ) -> tuple[Claimant, ...]:
        """Return the other resources about the same that the cluster lets in."""
        place = cluster_of(manifest)
        about = (place, content_name(manifest, _content_field(kind)))
        since = self._since(manifest)
        cluster = await self.cluster(place, since)
        if cluster is None:
            return ()
        index = await self.index(kind, uid=me.uid, since=since)
        found = []
        for one in index.by_content.get(about, ()):
            labels = await self._selected(cluster, one.namespace, since)
            if one.uid != me.uid and allows(cluster, one.namespace, labels):
                found.append(one)
        return tuple(found)


CONTENT_FIELDS: Final = {
    "ImagoTopic": "topicName",
    "ImagoConsumerGroup": "groupName",
    "ImagoUser": "userName",
}


def _content_field(kind: Kind[Any]) -> str:
    return CONTENT_FIELDS[kind.name]


def content_name(manifest: Manifest, name: str) -> str:
    """Return the name of the topic, group or user that a resource is about."""
    return str(manifest.get("spec", {}).get(name) or manifest["metadata"]["name"])


def status_from(kind: Kind[Any], manifest: Manifest) -> Any:
    """Return the status that an object has: the operator's memory."""
    return build(kind.status, with_defaults(kind.status_schema, manifest.get("status") or {}))


class Voice:
    """Writes the status of objects where it has changed."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def say(self, manifest: Manifest, before: Any, after: Any) -> None:
        """Write a status and the events of its conditions; nothing where nothing changed."""
        if after == before:
            return
        await self.write(manifest, after)
        old: Conditions = before.conditions
        for event in changes(old, after.conditions):
            await self._context.kube.event(manifest, event.type, event.reason, event.message)

    async def call_out(self, manifest: Manifest, reason: str, message: str) -> None:
        """Record a warning, where no status can be written."""
        await self._context.kube.event(manifest, "Warning", reason, message)

    async def write(self, manifest: Manifest, status: Any) -> None:
        """Write a status."""
        metadata = manifest["metadata"]
        self._context.leading()
        await self._context.kube.apply_status(
            {
                "apiVersion": API_VERSION,
                "kind": manifest["kind"],
                "metadata": {k: metadata[k] for k in ("name", "namespace", "uid")},
                "status": to_json(status),
            }
        )

    async def hold(self, manifest: Manifest, *, held: bool) -> None:
        """Have an object keep our finalizer, or not."""
        metadata = manifest["metadata"]
        others = [one for one in metadata.get("finalizers") or () if one != FINALIZER]
        wanted = [*others, FINALIZER] if held else others
        patch = {"metadata": {"finalizers": wanted, "resourceVersion": metadata["resourceVersion"]}}
        self._context.leading()
        await self._context.kube.patch(
            manifest["kind"],
            metadata["namespace"],
            metadata["name"],
            uid=metadata["uid"],
            patch=patch,
        )

    async def settle(self, manifest: Manifest, planned: ClaimPlan[Any, Any]) -> bool:
        """Hold an object or let it go, as planned; True: it may go, and nothing is left to do."""
        if planned.release is not None:
            await self.release(manifest, planned.release)
            return True
        if planned.hold is not None:
            await self.hold(manifest, held=planned.hold)
        return False

    async def release(self, manifest: Manifest, why: Leaving) -> None:
        """Let a deleted object go, and say why."""
        kind = "Warning" if why.warning else "Normal"
        await self._context.kube.event(manifest, kind, why.reason, why.message)
        await self.hold(manifest, held=False)


async def problem_of(doing: Awaitable[object]) -> ContentRefusal | None:
    """Have brokers do something; return why they did not."""
    try:
        await doing
    except RetryError as error:
        return ContentRefusal("ClusterNotReady", str(error))
    except (BlockedError, InvalidError) as error:
        return ContentRefusal("BrokerRejected", str(error))
    return None
