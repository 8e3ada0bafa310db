"""Claims, and what only a right on the whole Kubernetes cluster shows: nodes, volumes, classes.

Where that right is missing, nothing is known of them, and nothing is done that would need it.
"""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from imago_operator.brokers.reach import is_ready
from imago_operator.errors import BlockedError
from imago_operator.model import names
from imago_operator.model.state import Claim, KubeNode, parsed
from imago_operator.spec.schema.values import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from imago_operator.model.desired import Desired
    from imago_operator.ports import KubePort

    Manifest = Mapping[str, Any]

NODES_S: Final = 15.0
CLASSES_S: Final = 60.0
KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
HOSTNAME: Final = "kubernetes.io/hostname"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
CLASS_NOTES: Final = "volume.beta.kubernetes.io/storage-class"


class Volumes:
    """Reads claims, and what is known of the disks below them."""

    def __init__(self, kube: KubePort, clock: Callable[[], float]) -> None:
        """`clock`: seconds that never go back."""
        self._kube, self._clock = kube, clock
        self._lists: dict[str, tuple[float, Sequence[Manifest] | None]] = {}
        self._lock = asyncio.Lock()

    async def nodes(self, desired: Desired) -> Mapping[str, KubeNode] | None:
        """Return the nodes with their racks; None: not allowed to look."""
        items = await self._all("Node", NODES_S)
        if items is None:
            return None
        key = desired.spec.brokers.rack.topology_key
        found = (_node(item, key) for item in items)
        return {node.name: node for node in found}

    async def expandable(self, claims: Iterable[Manifest]) -> Mapping[str, bool]:
        """Return which storage classes grow, by name; "" is the default one.

        Where classes may not be read, all count as such: Kubernetes refuses what cannot be.
        """
        items = await self._all("StorageClass", CLASSES_S)
        if items is None:
            return {"": True} | {_class(claim) or "": True for claim in claims}
        found = {i["metadata"]["name"]: bool(i.get("allowVolumeExpansion")) for i in items}
        usual = [i for i in items if _notes(i).get(DEFAULT_CLASS) == "true"]
        return found | {"": any(found[i["metadata"]["name"]] for i in usual)}

    async def classes(self) -> frozenset[str] | None:
        """Return the names of all storage classes; None: not allowed to look."""
        items = await self._all("StorageClass", CLASSES_S)
        return None if items is None else frozenset(i["metadata"]["name"] for i in items)

    async def claims(
        self, desired: Desired, items: Iterable[Manifest], pods: Iterable[Manifest]
    ) -> tuple[Claim, ...]:
        """Return the claims of brokers, by their names."""
        running = {pod["metadata"]["name"] for pod in pods if is_ready(pod)}
        pattern = re.compile(rf"data-({re.escape(desired.name)}-s([0-9]+)-([0-9]+))")
        found = []
        for item in items:
            match = pattern.fullmatch(item["metadata"]["name"])
            if match is not None:
                # Where a volume is matters only while its pod does not run.
                node = None if match[1] in running else await self._node_of(item)
                found.append(_claim(item, int(match[2]), int(match[3]), node, desired))
        return tuple(found)

    def of_servers(self, desired: Desired, items: Iterable[Manifest]) -> tuple[Claim, ...]:
        """Return the claims of ZooKeeper's servers, by their names."""
        pattern = re.compile(rf"data-{re.escape(names.zookeeper(desired.name))}-([0-9]+)")
        matches = ((item, pattern.fullmatch(item["metadata"]["name"])) for item in items)
        return tuple(_claim(item, -1, int(m[1]), None, desired) for item, m in matches if m)

    async def _node_of(self, claim: Manifest) -> str | None:
        """Return the only node that a claim's volume can be on; None: any, or not known."""
        volume = claim.get("spec", {}).get("volumeName")
        if not volume:
            return None
        try:
            found = await self._kube.get("PersistentVolume", "", volume)
        except BlockedError:
            return None
        host = _only_host(found or {})
        for node in await self._all("Node", NODES_S) or ():
            if host is not None and _labels(node).get(HOSTNAME) == host:
                return str(node["metadata"]["name"])
        return host

    async def _all(self, kind: str, for_s: float) -> Sequence[Manifest] | None:
        """Return all objects of a kind, a little old perhaps; None: not allowed to."""
        async with self._lock:
            read = self._lists.get(kind)
            if read is not None and self._clock() - read[0] < for_s:
                return read[1]
            found: Sequence[Manifest] | None
            try:
                found = await self._kube.list(kind, "")
            except BlockedError:
                found = None
            self._lists[kind] = (self._clock(), found)
            return found


def _claim(item: Manifest, shard: int, ordinal: int, node: str | None, desired: Desired) -> Claim:
    metadata, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    capacity = status.get("capacity", {}).get("storage")
    owners = metadata.get("ownerReferences") or ()
    return Claim(
        name=metadata["name"],
        uid=metadata["uid"],
        shard=shard,
        ordinal=ordinal,
        requested=size_of(spec["resources"]["requests"]["storage"]),
        capacity=size_of(capacity) if capacity else None,
        phase=status.get("phase", "Pending"),
        attributes_class=spec.get("volumeAttributesClassName"),
        attributes_asked=_notes(item).get(names.ATTRIBUTES_CLASS),
        storage_class=_class(item),
        grown=_moment(_notes(item).get(names.GROWN)),
        conditions=frozenset(
            c["type"] for c in status.get("conditions") or () if c["status"] == "True"
        ),
        node=node,
        owned=any(owner["uid"] == desired.resource.uid for owner in owners),
    )


def _moment(text: str | None) -> datetime | None:
    """Return a moment that we have written; whatever else stands there says nothing."""
    try:
        found = parsed(text) if text else None
    except ValueError:
        return None
    return found if found and found.tzinfo else None


def size_of(text: str) -> int:
    """Return a quantity of Kubernetes in bytes; it may have an exponent, which ours never have."""
    return int(Decimal(text)) if "e" in text.lower().rstrip("ei") else Quantity(text).bytes


def _node(item: Manifest, rack_label: str) -> KubeNode:
    spec, status = item.get("spec", {}), item.get("status", {})
    ready = {c["type"]: c["status"] for c in status.get("conditions") or ()}.get("Ready")
    kept_off = any(t.get("effect") in KEEPS_OFF for t in spec.get("taints") or ())
    labels = _labels(item)
    return KubeNode(
        name=item["metadata"]["name"],
        rack=labels.get(rack_label, ""),
        labels=labels,
        open=ready == "True" and not spec.get("unschedulable") and not kept_off,
    )


def _class(claim: Manifest) -> str | None:
    said = claim.get("spec", {}).get("storageClassName") or _notes(claim).get(CLASS_NOTES)
    return str(said) if said else None


def _only_host(volume: Manifest) -> str | None:
    """Return the host that a volume's affinity names, if it is a single one."""
    required = volume.get("spec", {}).get("nodeAffinity", {}).get("required", {})
    terms = required.get("nodeSelectorTerms") or ()
    hosts = {
        tuple(expression.get("values") or ())
        for term in terms
        for expression in term.get("matchExpressions") or ()
        if expression["key"] == HOSTNAME and expression["operator"] == "In"
    }
    if len(hosts) != 1 or len(terms) != 1:
        return None
    values = next(iter(hosts))
    return values[0] if len(values) == 1 else None


def _labels(item: Manifest) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _notes(item: Manifest) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}
