"""Which cluster a resource belongs to, whether it may, and which of several resources counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.conditions import ContentRefusal
from imago_operator.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from imago_operator.spec.schema.common import ClusterRef

SHOWN_MAX: Final = 5
"""Clusters that are named where there is none of a name."""
FINALIZER: Final = f"{names.GROUP}/operator"

Manifest = Mapping[str, Any]
Place = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A resource that says what a topic or a group of a cluster is to be."""

    namespace: str
    name: str
    uid: str
    created: str
    """RFC 3339, whole seconds, UTC: the earlier text is the earlier moment."""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    generation: int = 1
    deleted_at: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def age(self) -> tuple[str, str]:
        """Of two, the lesser was there first."""
        return self.created, self.uid

    @property
    def paused(self) -> bool:
        return self.annotations.get(names.PAUSE) == "true"

    @property
    def hide_messages(self) -> str:
        """How many partitions may be left of a topic that has more, whatever they hold."""
        return self.annotations.get(names.HIDE_MESSAGES, "")

    @property
    def held(self) -> bool:
        """Whether it stays until the operator lets it go."""
        return FINALIZER in self.finalizers


def claimant_of(manifest: Manifest) -> Claimant:
    """Return who an object is."""
    metadata = manifest["metadata"]
    return Claimant(
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        created=metadata.get("creationTimestamp", ""),
        deleting="deletionTimestamp" in metadata,
        finalizers=tuple(metadata.get("finalizers") or ()),
        generation=metadata.get("generation", 1),
        deleted_at=metadata.get("deletionTimestamp"),
        annotations=dict(metadata.get("annotations") or {}),
    )


def cluster_of(manifest: Manifest) -> Place:
    """Return namespace and name of the cluster that an object names."""
    reference = manifest.get("spec", {}).get("clusterRef") or {}
    own = manifest["metadata"].get("namespace", "default")
    return reference.get("namespace") or own, reference.get("name", "")


def winner(claimants: Iterable[Claimant]) -> Claimant | None:
    """Return the one that counts: the oldest that is not going."""
    return min((c for c in claimants if not c.deleting), key=lambda c: c.age, default=None)


def is_going(cluster: Manifest | None) -> bool:
    """Whether a cluster is gone, or about to be."""
    return cluster is None or "deletionTimestamp" in cluster["metadata"]


def refusal(
    cluster: Manifest | None,
    reference: ClusterRef,
    namespace: str,
    labels: Mapping[str, str] | None,
    known: Sequence[str] = (),
) -> ContentRefusal | None:
    """Return why a resource of this namespace has no such cluster; None: it has.

    `labels`: those of the namespace; None: they are unknown, and fit no selector. `known`: the
    clusters of its own namespace, for who has mistaken the name.
    """
    where = reference.namespace or namespace
    if cluster is None:
        text = f"There is no ImagoCluster {where}/{reference.name}{_others(known)}."
        return ContentRefusal("ClusterNotFound", text)
    if "deletionTimestamp" in cluster["metadata"]:
        return ContentRefusal("ClusterNotFound", f"{where}/{reference.name} is being deleted.")
    if not allows(cluster, namespace, labels):
        unseen = labels is None and _selecting(cluster)
        why = ": the operator cannot read its labels" if unseen else ""
        text = f"allowedNamespaces of {where}/{reference.name} does not let {namespace} in{why}."
        return ContentRefusal("NamespaceNotAllowed", text)
    return None


def _others(known: Sequence[str]) -> str:
    shown, more = ", ".join(sorted(known)[:SHOWN_MAX]), len(known) - SHOWN_MAX
    return "" if not known else f"; here are {shown}" + (f" and {more} more" if more > 0 else "")


def _selecting(cluster: Manifest) -> bool:
    return (cluster.get("spec", {}).get("allowedNamespaces") or {}).get("from") == "Selector"


def allows(cluster: Manifest, namespace: str, labels: Mapping[str, str] | None) -> bool:
    """Whether a cluster lets resources of a namespace in."""
    if namespace == cluster["metadata"].get("namespace", "default"):
        return True
    said = cluster.get("spec", {}).get("allowedNamespaces") or {}
    match said.get("from", "Same"):
        case "All":
            return True
        case "Selector":
            return labels is not None and selects(said.get("selector") or {}, labels)
        case _:
            return False


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector fits; what it says and nobody understands fits nothing."""
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    return all(_fits(one, labels) for one in selector.get("matchExpressions") or ())


def _fits(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression.get("key", "")), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
