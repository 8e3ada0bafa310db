"""A new template of brokers' pods is tried on one shard before the others get it.

Whatever makes a pod anew, be it an eviction or the end of a node, makes it of its StatefulSet's
template. With all of them changed at once, an image or a setting with which no broker starts would
take member after member. So a shard that serves keeps the template that its members run with until
a member elsewhere has come up with today's. Where nobody serves, or a pod does not run, today's
may be the cure, and is not waited for.

Members join and leave without it: whoever joins then is made of the template that the others run
with, and reads the same file, but for what it says of how many count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.manifests.common import stamped
from imago_operator.manifests.config import with_config
from imago_operator.model import names
from imago_operator.plan import membership
from imago_operator.plan.members.counting import recounted
from imago_operator.plan.restarts.permission import obstacle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.manifests.common import Manifest
    from imago_operator.model.state import OwnedObject
    from imago_operator.plan.look import ClusterLook


def held_back(look: ClusterLook, number: int) -> bool:
    """Whether a shard's StatefulSet keeps its template for now."""
    mine = look.observed.sets().get(number)
    if mine is None or number not in look.running or _is_new(look, mine, number):
        return False
    if _is_proven(look) or number == _first(look):
        return False
    pods = look.observed.pods_of(number)
    if any(pod.stuck or membership.never_runs(look, pod) for pod in pods):
        return False
    return any(pod.serving or membership.able(look, pod) for pod in pods)


def waits(look: ClusterLook, number: int) -> str:
    """Return what restarts in a shard wait for where it keeps its template; empty: nothing."""
    return f"shard-{number}: another shard to come up first" if held_back(look, number) else ""


def kept(look: ClusterLook, found: OwnedObject, manifest: Manifest) -> Iterator[Manifest]:
    """Yield the objects with which a shard keeps its template, and has other members."""
    template = found.template
    if file := recounted(look.desired, look.observed, template):
        template = with_config(template, file["metadata"]["name"])
        yield file
    if file is None and found.replicas == manifest["spec"]["replicas"]:
        return
    # What the server has added to it is no part of it.
    metadata = {key: said for key, said in template["metadata"].items() if said is not None}
    noted = manifest["metadata"]["annotations"] | {
        names.TEMPLATE_HASH: found.annotations.get(names.TEMPLATE_HASH, "")
    }
    yield stamped(
        {
            **manifest,
            "metadata": {**manifest["metadata"], "annotations": noted},
            "spec": {**manifest["spec"], "template": {**template, "metadata": metadata}},
        }
    )


def _is_new(look: ClusterLook, found: OwnedObject, number: int) -> bool:
    wanted = look.notes(number).get(names.TEMPLATE_HASH)
    return found.annotations.get(names.TEMPLATE_HASH) == wanted


def _is_proven(look: ClusterLook) -> bool:
    """Whether a broker of today's template answers."""
    return any(
        pod.broker is not None
        and pod.annotations.get(names.TEMPLATE_HASH)
        == look.notes(pod.shard).get(names.TEMPLATE_HASH)
        for pod in look.observed.pods
        if pod.shard is not None
    )


def _first(look: ClusterLook) -> int | None:
    """Return the shard that today's template is tried on next; None: one tries it already.

    One whose pods are not to be restarted now (`permission`) shows nothing: then it is another.
    """
    sets = {n: child for n, child in look.observed.sets().items() if n in look.running}
    new = {n for n, child in sets.items() if _is_new(look, child, n)}
    if any(_tries(look, n) for n in new):
        return None
    due = [n for n in sets if n not in new and _is_due(look, n)]
    return min(due, default=None if new else min(sets, default=None))


def _tries(look: ClusterLook, number: int) -> bool:
    """Whether a pod of today's template begins in a shard, or is about to."""
    pods = look.observed.pods_of(number)
    missing = len(pods) < look.desired.replicas
    begins = any(pod.deleting or not look.outdated(pod) for pod in pods)
    return missing or begins or _is_due(look, number)


def _is_due(look: ClusterLook, number: int) -> bool:
    pods = look.observed.pods_of(number)
    return any(look.outdated(pod) and not obstacle(look, pod) for pod in pods)
