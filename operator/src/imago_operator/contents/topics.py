"""Plan and status of an ImagoTopic: a pure function of what was seen.

What the resource says wins over what brokers have; what it does not say is left alone. A topic
without a resource is never touched, and nothing that has messages is taken away but by a deletion
under `deletionPolicy: Delete`, or hidden but under an annotation that names the partitions left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.claiming import ClaimLook, ClaimPlan, held, leaving, still
from imago_operator.contents.conditions import ContentRefusal, conditions, holds, ready
from imago_operator.model import names
from imago_operator.model.desired import fingerprint
from imago_operator.spec.topic import (
    AdoptionPolicy,
    Dialects,
    PartitionCounts,
    TopicStatus,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from imago_operator.contents.values import SeenTopic
    from imago_operator.model.state import ConditionFinding
    from imago_operator.spec.topic import TopicSpec

ACKNOWLEDGEMENT: Final = "acknowledgement"
RETENTION: Final = "retention.ms"
BROKERS_OWN: Final = frozenset({"dialects", "materialised", "sealed"})
"""Attributes that brokers set by themselves, or when a topic is made."""
LISTED_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLook(ClaimLook["TopicSpec", TopicStatus]):
    """One look at an ImagoTopic."""

    status: TopicStatus = field(default_factory=TopicStatus)
    topic: SeenTopic | None = None


@dataclass(frozen=True, slots=True)
class PutTopic:
    """Make the topic or change it: settings as PUT /admin/v1/topics/{topic} takes them."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete the topic with its messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan(ClaimPlan[PutTopic | DeleteTopic, TopicStatus]):
    """What is done now."""


def plan(look: TopicLook, now: datetime, *, release_after_s: float) -> TopicPlan:
    """Return what is to be done now."""
    if look.me.deleting:
        return _leaving(look, now, release_after_s)
    if (found := still(look)) is not None:
        return TopicPlan(findings=(found.finding,), hold=found.hold)
    return replace(_settle(look), hold=held(look))


def _leaving(look: TopicLook, now: datetime, release_after_s: float) -> TopicPlan:
    exists = look.topic is not None if look.listed else None
    going = leaving(look, now, exists=exists, release_after_s=release_after_s)
    if going is None:
        return TopicPlan()
    if going.delete:
        return TopicPlan(act=DeleteTopic(), findings=(going.finding,))
    return TopicPlan(release=going if going.release else None, findings=(going.finding,))


def _settle(look: TopicLook) -> TopicPlan:
    if not look.listed:
        return TopicPlan(
            findings=(ContentRefusal("ClusterNotReady", "No broker answers.").finding,)
        )
    strict = look.spec.adoption_policy is AdoptionPolicy.FAIL_IF_EXISTS
    begun = look.status.topic_name is not None or look.status.applied_hash is not None
    if strict and not begun:
        if look.topic is not None:
            text = f"{look.name} exists already, and adoptionPolicy is FailIfExists."
            return TopicPlan(findings=(ContentRefusal("Conflict", text).finding,))
        # Written down first: a topic that is found later is then known to be ours.
        return TopicPlan(record=replace(look.status, topic_name=look.name))
    whole = wanted(look.spec)
    mark = fingerprint(whole)
    body = _missing(look, whole, anew=look.status.applied_hash != mark)
    return TopicPlan(
        act=PutTopic(body) if body or look.topic is None else None,
        findings=tuple(_said(look)),
        applies=mark,
    )


def wanted(spec: TopicSpec) -> dict[str, Any]:
    """Return the settings that a topic is to have, as brokers take them."""
    body: dict[str, Any] = {"queues": spec.partitions, "order": spec.ordered}
    if spec.acknowledgement is not None:
        body["acknowledgement"] = spec.acknowledgement.value
    if spec.retention.time is not None:
        body["retentionMs"] = round(spec.retention.time.seconds * 1000)
    if spec.config:
        body["attributes"] = {name: str(said.value) for name, said in spec.config.items()}
    if spec.dialects is Dialects.ROCKETMQ:
        body["dialects"] = "rocketmq"
    if spec.placement.count is not None:
        body["shards"] = spec.placement.count
    elif spec.placement.shard_ids:
        body["shards"] = sorted(spec.placement.shard_ids)
    return body


def _missing(look: TopicLook, whole: Mapping[str, Any], *, anew: bool) -> dict[str, Any]:
    """Return the settings that brokers have to be told.

    `anew`: all of them, because brokers have never confirmed them: what one shard has of them does
    not show in the registry.
    """
    topic = look.topic
    if topic is None:
        return dict(whole)
    attributes = {
        name: value
        for name, value in whole.get("attributes", {}).items()
        if anew or topic.attributes.get(name) != value
    }
    differs = {
        "queues": _may_grow(topic, look.spec.partitions)
        and (anew or _must_grow(topic, look.spec.partitions)),
        "order": anew or topic.order != whole["order"],
        ACKNOWLEDGEMENT: anew
        or topic.attributes.get(ACKNOWLEDGEMENT) != whole.get(ACKNOWLEDGEMENT),
        "retentionMs": anew or topic.attributes.get(RETENTION) != str(whole.get("retentionMs")),
        "attributes": bool(attributes),
    }
    body = {name: whole[name] for name, other in differs.items() if other and name in whole}
    if attributes:
        body["attributes"] = attributes
    if _may_hide(look) and _open_with_more(topic, look.spec.partitions):
        body |= {"queues": whole["queues"], "hideMessages": True}
    return body | _further(topic, look.spec)


def _may_hide(look: TopicLook) -> bool:
    """Whether a person has said that just so few partitions may be left."""
    return look.me.hide_messages == str(look.spec.partitions)


def _open_with_more(topic: SeenTopic, partitions: int) -> bool:
    """Whether it has more on a shard that takes messages: on others they stay, to be read out."""
    return any(q.open and q.number > partitions for q in topic.shards.values())


def _may_grow(topic: SeenTopic, partitions: int) -> bool:
    return all(queues.number <= partitions for queues in topic.shards.values())


def _must_grow(topic: SeenTopic, partitions: int) -> bool:
    return any(
        min(queues.write, queues.read) < partitions if queues.open else queues.read < partitions
        for queues in topic.shards.values()
    )


def _further(topic: SeenTopic, spec: TopicSpec) -> dict[str, Any]:
    """Return `shards` where the topic is to get queues on more of them."""
    count, named = spec.placement.count, frozenset(spec.placement.shard_ids)
    if count is not None and len(topic.open_on) < count:
        return {"shards": count}
    if named - frozenset(topic.shards):
        return {"shards": sorted(named | frozenset(topic.shards))}
    return {}


def _said(look: TopicLook) -> Iterator[ConditionFinding]:
    """Say what is as it is to be, and what is not and cannot be changed."""
    topic, spec = look.topic, look.spec
    if topic is None:
        return
    most = max((queues.number for queues in topic.shards.values()), default=0)
    if most > spec.partitions and not _may_hide(look):
        text = (
            f"{look.name} has {most} partitions a shard, which cannot become {spec.partitions}:"
            " what the others hold would be hidden. To have it so, annotate the resource with"
            f" {names.HIDE_MESSAGES}={spec.partitions}."
        )
        yield ContentRefusal("PartitionsCannotShrink", text).finding
    elif (spec.dialects is Dialects.ROCKETMQ) != (topic.dialects == "rocketmq"):
        text = f"{look.name} was made for clients of {topic.dialects}, which cannot be changed."
        yield ContentRefusal("BrokerRejected", text).finding
    else:
        yield ready("InSync")
    yield from _noted(topic, spec)


def _noted(topic: SeenTopic, spec: TopicSpec) -> Iterator[ConditionFinding]:
    unknown = sorted(
        f"{name}={value}"
        for name, value in topic.attributes.items()
        if name not in BROKERS_OWN and name not in spec.config and not _has_field(name, spec)
    )
    if unknown:
        text = f"Brokers have settings that are not in the spec, and stay: {_listed(unknown)}."
        yield holds("Warning", "UnknownSettings", text)
        return
    count, named = spec.placement.count, frozenset(spec.placement.shard_ids)
    surplus = topic.open_on - named if named else frozenset()
    if (count is not None and len(topic.open_on) > count) or surplus:
        text = f"It has queues on {_listed(sorted(topic.open_on))}: nothing is taken from a shard."
        yield holds("Warning", "MoreShards", text)


def _has_field(name: str, spec: TopicSpec) -> bool:
    if name == ACKNOWLEDGEMENT:
        return spec.acknowledgement is not None
    return name == RETENTION and spec.retention.time is not None


def _listed(items: Iterable[object]) -> str:
    found = [str(item) for item in items]
    more = f" and {len(found) - LISTED_MAX} more" if len(found) > LISTED_MAX else ""
    return ", ".join(found[:LISTED_MAX]) + more


def status_of(
    look: TopicLook,
    planned: TopicPlan,
    now: datetime,
    *,
    done: bool = False,
    problem: ContentRefusal | None = None,
) -> TopicStatus:
    """Return the status after a look.

    `done`: whether `act` has succeeded; `problem`: why it has not.
    """
    found = [*planned.findings, *([problem.finding] if problem else ())]
    applies = planned.applies if problem is None and (done or planned.act is None) else None
    if done and look.topic is None and isinstance(planned.act, PutTopic):
        found.append(ready("InSync"))
    before = planned.record or look.status
    new = replace(
        before,
        observed_generation=look.me.generation,
        conditions=conditions(found, look.status.conditions, look.me.generation, now),
        applied_hash=applies or before.applied_hash,
    )
    if applies is not None:
        new = replace(new, topic_name=look.name)
    return _counted(look, new)


def _counted(look: TopicLook, status: TopicStatus) -> TopicStatus:
    topic = look.topic
    if topic is None or not look.counts:
        return status
    queues = topic.shards.values()
    counts = PartitionCounts(
        total=sum(q.number for q in queues),
        online=sum(q.number for q in queues if q.online),
        sealed=sum(q.number for q in queues if not q.open),
    )
    return replace(status, partitions=counts, shards=tuple(sorted(topic.shards)))
