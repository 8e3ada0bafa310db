"""Troubles that the operator reports for people and does not act on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_operator.model.state import ConditionFinding
from imago_operator.plan.drift import drifted
from imago_operator.plan.rows import PlanRow, PlanStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imago_operator.manifests.common import Manifest
    from imago_operator.model.state import Pod, Shard
    from imago_operator.plan.look import ClusterLook

MEMBERS: Final = "MembersImpaired"
CONTESTED: Final = "DriftContested"
LISTED_MAX: Final = 10


def members(look: ClusterLook) -> PlanStep:
    """Name members that cannot do their part, have damage in their logs, or miss their bucket."""
    shards = [shard for n in look.running if (shard := look.shard(n)) is not None]
    stuck = [told for shard in shards for told in _stuck(look, shard)]
    damaged = [told for shard in shards for told in _damaged(look, shard)]
    away = [
        f"{pod.name}: old messages are in a bucket that it does not reach"
        for pod in look.observed.pods
        if pod.broker is not None and pod.broker.bucket_away
    ]
    reason = "MemberStuck" if stuck else "MemberDamaged" if damaged else "BucketAway"
    text = "; ".join((*stuck, *damaged, *away)[:LISTED_MAX])
    said = ConditionFinding(type=MEMBERS, holds=True, reason=reason, message=f"{text}.")
    return PlanStep(row=PlanRow.MEMBERS, findings=(said,) if text else ())


def _stuck(look: ClusterLook, shard: Shard) -> Iterator[str]:
    for member in shard.members:
        if member.problem:
            yield f"{_named(look, shard, member.uuid)}: {member.problem}"


def _damaged(look: ClusterLook, shard: Shard) -> Iterator[str]:
    for member in shard.members:
        if member.damaged:
            yield f"{_named(look, shard, member.uuid)}: a part of its log is out of service"


def _named(look: ClusterLook, shard: Shard, uuid: str) -> str:
    """Return the pod of a member; where none answers that is it, what the registry calls it."""
    pods = look.observed.pods_of(shard.id)
    found = (pod.name for pod in pods if pod.broker and pod.broker.uuid == uuid)
    return next(found, f"member {uuid} of shard-{shard.id}")


def pods(look: ClusterLook) -> PlanStep:
    """Name pods that no node takes, whose image is missing, and whose containers fail.

    In the words of the scheduler, and in the containers' own.

    Whatever else is under way: a restart that such a pod holds up does not say so itself.
    """
    here = [pod for pod in look.observed.pods if not pod.deleting]
    homeless = [pod for pod in here if pod.unscheduled]
    without = {pod.missing_image for pod in here if pod.missing_image}
    told = []
    if homeless:
        told.append(f"No node takes {_listed(homeless)}: {homeless[0].unscheduled}")
    for image in sorted(without):
        waiting = [pod for pod in here if pod.missing_image == image]
        told.append(f"Image {image} cannot be pulled for {_listed(waiting)}.")
    failing = {pod.failure: pod for pod in reversed(here) if pod.failure}
    for words, first in sorted(failing.items()):
        alike = [pod for pod in here if pod.failure == words and pod is not first]
        more = f" (and {_listed(alike)})" if alike else ""
        told.append(f"{first.name}{more}: {words.rstrip('.')}.")
    reason = "PodsUnschedulable" if homeless else "ImageMissing" if without else "PodsFailing"
    text = " ".join(told)
    said = ConditionFinding(type="Degraded", holds=True, reason=reason, message=text)
    return PlanStep(row=PlanRow.MEMBERS, findings=(said,) if told else ())


def _listed(found: Iterable[Pod]) -> str:
    return ", ".join([pod.name for pod in found][:LISTED_MAX])


def contested(look: ClusterLook, manifests: Iterable[Manifest]) -> tuple[ConditionFinding, ...]:
    """Name fields that somebody changes again after they were put back."""
    fought = [told for manifest in manifests for told in _fought(look, manifest)]
    text = "; ".join(fought[:LISTED_MAX])
    said = ConditionFinding(type=CONTESTED, holds=True, reason="ChangedAgain", message=f"{text}.")
    return (said,) if fought else ()


def _fought(look: ClusterLook, manifest: Manifest) -> Iterator[str]:
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    child = look.observed.child(kind, name)
    if child is None or not child.contested:
        return
    for each in drifted(manifest, replace(child, spared=frozenset())):
        if each.path in child.contested:
            who = f" by {each.by}" if each.by else ""
            yield f"{kind} {name}: {each.path} is {each.found} again{who}, not {each.wanted}"
