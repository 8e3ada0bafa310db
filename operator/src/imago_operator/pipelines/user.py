"""Who a pipeline is to a cluster that checks rights: an ImagoUser of its own, or one that is there.

Its own may do what a run does with the source's topics, and nothing else: who may make pipelines
in a namespace reads topics by it, and administers nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from imago_operator.model import names
from imago_operator.model.desired import fingerprint
from imago_operator.pipelines.pods import labels, owner_reference
from imago_operator.spec.kinds import API_VERSION
from imago_operator.spec.schema.common import USER_SIZE_MAX, ConditionStatus
from imago_operator.spec.user import AuthenticationType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.manifests.common import Manifest
    from imago_operator.pipelines.desired import DesiredPipeline

TLS: Final = AuthenticationType.TLS.value
TOKEN: Final = AuthenticationType.TOKEN.value
SPARK_GROUP: Final = "IMAGO_SPARK"
"""The group in whose name Spark's source reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPipelineUser:
    """An ImagoUser as it is."""

    name: str
    uid: str
    owned: bool
    """Whether it belongs to the pipeline."""
    hash: str
    """Fingerprint of the spec that we gave it."""
    secret: str
    """Its Secret, once brokers have the user as its spec says; empty: not yet."""
    said: str
    """What it says of itself while they have not."""
    shows: bool = False
    """Whether it shows a certificate, in place of a password."""


def object_name(desired: DesiredPipeline) -> str:
    """Return the name of the ImagoUser that a run uses."""
    wanted = desired.spec.user
    return (wanted.name if wanted else None) or own_name(desired)


def own_name(desired: DesiredPipeline) -> str:
    """Return the name of the ImagoUser that the operator makes."""
    return f"{desired.name}-pipeline"


def is_own(desired: DesiredPipeline) -> bool:
    """Whether the pipeline is to have a user of its own."""
    return desired.spec.user is not None and desired.spec.user.name is None


def own_user(desired: DesiredPipeline) -> Manifest:
    """Return the ImagoUser of a pipeline; it goes with it."""
    namespace, cluster = desired.cluster
    reference = {"name": cluster, "namespace": namespace}
    spec: Manifest = {
        "clusterRef": reference,
        "userName": user_name(desired),
        "authorization": {"acls": acls(desired)},
    }
    metadata: Manifest = {
        "name": own_name(desired),
        "namespace": desired.namespace,
        "labels": labels(desired),
        "annotations": {names.APPLIED_HASH: fingerprint(spec)},
        "ownerReferences": [owner_reference(desired)],
    }
    return {"apiVersion": API_VERSION, "kind": "ImagoUser", "metadata": metadata, "spec": spec}


def user_name(desired: DesiredPipeline) -> str:
    """Return the name under which brokers know it: no two pipelines have the same."""
    if len(desired.fence) <= USER_SIZE_MAX:
        return desired.fence
    mark = fingerprint(desired.fence)
    return f"{desired.fence[: USER_SIZE_MAX - len(mark) - 1]}-{mark}"


def acls(desired: DesiredPipeline) -> list[dict[str, Any]]:
    """Return what a run does: read the topics, report how far it is."""
    source = desired.spec.source
    found = [_may("Topic", topic, "subscribe") for topic in sorted(set(source.topics))]
    groups = {SPARK_GROUP, *([source.group_name] if source.group_name else [])}
    found += [_may("Group", group, "subscribe") for group in sorted(groups)]
    return [*found, _may("Pipeline", desired.fence, "publish")]


def _may(kind: str, name: str, operation: str) -> dict[str, Any]:
    return {"resource": {"type": kind, "name": name}, "operations": [operation]}


def seen_user(manifest: Mapping[str, Any], owner: str) -> SeenPipelineUser:
    """Return an ImagoUser; `owner`: the uid of the pipeline."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    said = conditions.get("Ready") or {}
    is_new = status.get("observedGeneration") == metadata.get("generation")
    ready = is_new and said.get("status") == ConditionStatus.TRUE
    references = metadata.get("ownerReferences") or ()
    way = (manifest["spec"].get("authentication") or {}).get("type")
    words = str(said.get("message") or said.get("reason") or "") if is_new else ""
    if way == TOKEN:
        ready, words = False, "it has a token, which opens the admin interface alone"
    return SeenPipelineUser(
        name=metadata["name"],
        uid=metadata["uid"],
        owned=any(one.get("controller") and one["uid"] == owner for one in references),
        hash=(metadata.get("annotations") or {}).get(names.APPLIED_HASH, ""),
        secret=str(status.get("secretName") or "") if ready else "",
        said=words,
        shows=way == TLS,
    )
