"""Plan and status of an ImagoConsumerGroup."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.claiming import ClaimLook, ClaimPlan, held, leaving, still
from imago_operator.contents.conditions import ContentRefusal, conditions, holds, ready
from imago_operator.contents.values import SYSTEM_PREFIXES
from imago_operator.model.desired import fingerprint
from imago_operator.model.state import written
from imago_operator.model.wording import counted
from imago_operator.spec.group import GroupMode, GroupStatus, LastReset, Position, TopicLag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_operator.contents.values import GroupLag, SeenGroup
    from imago_operator.model.state import ConditionFinding
    from imago_operator.spec.group import GroupSpec, ResetRequest

UNITS: Final = ("", "k", "M", "G", "T", "P", "E")
TOPICS_MAX: Final = 100
RESULT_MAX: Final = 1024
STARTED: Final = "Started"
"""Result of a reset that has begun: written down before the first offset is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook(ClaimLook["GroupSpec", GroupStatus]):
    """One look at an ImagoConsumerGroup."""

    status: GroupStatus = field(default_factory=GroupStatus)
    missing: tuple[str, ...] = ()
    """Shards that did not answer: what they know is not in `group`."""
    group: SeenGroup | None = None

    @property
    def known(self) -> bool:
        """Whether every shard was heard."""
        return self.listed and not self.missing


@dataclass(frozen=True, slots=True)
class PutGroup:
    """Make the group or change it: settings as PUT /admin/v1/groups/{group} takes them."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete settings and offsets of the group."""


@dataclass(frozen=True, slots=True)
class ResetGroup:
    """Have the group go on from somewhere else."""

    topics: tuple[str, ...]
    to: str | int
    """As brokers take it: "earliest", "latest", or ms since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan(ClaimPlan[PutGroup | DeleteGroup, GroupStatus]):
    """What is done now; `reset` follows `act`."""

    reset: ResetGroup | None = None


def plan(look: GroupLook, now: datetime, *, release_after_s: float) -> GroupPlan:
    """Return what is to be done now."""
    if look.me.deleting:
        return _leaving(look, now, release_after_s)
    if (found := still(look)) is not None:
        return GroupPlan(findings=(found.finding,), hold=found.hold)
    return replace(_settle(look, now), hold=held(look))


def _leaving(look: GroupLook, now: datetime, release_after_s: float) -> GroupPlan:
    group = look.group
    exists = (group is not None and group.kept) if look.known else None
    going = leaving(look, now, exists=exists, release_after_s=release_after_s)
    if going is None:
        return GroupPlan()
    if going.delete and group is not None and group.members:
        text = f"The group has {counted(len(group.members), 'member')}: it goes when none is left."
        return GroupPlan(findings=(ContentRefusal("GroupActive", text).finding,))
    if going.delete:
        return GroupPlan(act=DeleteGroup(), findings=(going.finding,))
    return GroupPlan(release=going if going.release else None, findings=(going.finding,))


def _settle(look: GroupLook, now: datetime) -> GroupPlan:
    if not look.listed:
        return GroupPlan(
            findings=(ContentRefusal("ClusterNotReady", "No broker answers.").finding,)
        )
    whole = wanted(look.spec)
    mark = fingerprint(whole)
    have = look.group.settings if look.group else None
    differing = {key: value for key, value in whole.items() if not have or have.get(key) != value}
    body = whole if look.status.applied_hash != mark else differing
    planned = GroupPlan(
        act=PutGroup(body) if body else None,
        findings=(ready("InSync"), *_lag_high(look, now)),
        applies=mark,
    )
    return _with_reset(look, planned, now)


def wanted(spec: GroupSpec) -> dict[str, Any]:
    """Return the settings that a group is to have, as brokers take them."""
    return {
        "consume_enable": spec.consume_enabled,
        "consume_broadcast_enable": spec.mode is GroupMode.BROADCAST,
        "consume_message_orderly": spec.ordered,
        "retry_queues": spec.retry_queues,
        "retry_max_times": spec.max_retries,
    }


def _with_reset(look: GroupLook, planned: GroupPlan, now: datetime) -> GroupPlan:
    """Add what is to be done about a request to go on from somewhere else: once for each name."""
    reset, last = look.spec.reset, look.status.last_reset
    if reset is None or (last and last.request_id == reset.request_id and last.result != STARTED):
        return planned
    begun = last is not None and last.request_id == reset.request_id
    members = look.group.members if look.group else ()
    if members and begun:
        text = (
            "Unknown: the operator was interrupted, and the group consumes. Request it once more."
        )
        return replace(planned, record=_result(look, reset, text, now))
    if members or look.missing:
        why = (
            f"stop its consumers ({counted(len(members), 'member')})."
            if members
            else _unheard(look)
        )
        reason = "GroupActive" if members else "ShardMissing"
        said = holds("ResetPending", reason, f"{reset.request_id} waits: {why}")
        return replace(planned, findings=(*planned.findings, said))
    topics = reset.topics or topics_of(look.group)
    if not topics:
        text = f"Nothing was done: the group has no offsets.{_metaq_stays(look.group)}"
        return replace(planned, record=_result(look, reset, text, now))
    if not begun:
        return replace(planned, record=_result(look, reset, STARTED, now))
    return replace(planned, reset=ResetGroup(topics, _place(reset)))


def _metaq_stays(group: SeenGroup | None) -> str:
    return " Those of MetaQ's consumers, in ZooKeeper, stay." if group and group.metaq_lags else ""


def _unheard(look: GroupLook) -> str:
    return f"{', '.join(look.missing)} did not answer."


def topics_of(group: SeenGroup | None) -> tuple[str, ...]:
    """Return the topics that a group has offsets of, without its own retries."""
    lags = group.lags if group else {}
    return tuple(sorted(name for name in lags if not name.startswith(SYSTEM_PREFIXES)))


def _place(reset: ResetRequest) -> str | int:
    if reset.to is not Position.TIMESTAMP:
        return reset.to.value.lower()
    assert reset.timestamp is not None
    return round(datetime.fromisoformat(reset.timestamp).timestamp() * 1000)


def finished(look: GroupLook, problems: Mapping[str, str], now: datetime) -> LastReset:
    """Return what a reset came to; `problems`: topics on which brokers refused it, and why."""
    reset = look.spec.reset
    assert reset is not None
    topics = reset.topics or topics_of(look.group)
    where = reset.timestamp or reset.to.value
    text = f"Reset {counted(len(topics) - len(problems), 'topic')} to {where}."
    for name, why in sorted(problems.items()):
        text += f" {name}: {why}"
    text = text[: RESULT_MAX - 100] + _metaq_stays(look.group)
    return LastReset(request_id=reset.request_id, at=written(now), result=text)


def _result(look: GroupLook, reset: ResetRequest, text: str, now: datetime) -> GroupStatus:
    last = LastReset(request_id=reset.request_id, at=written(now), result=text)
    return replace(look.status, last_reset=last)


def _lag_high(look: GroupLook, now: datetime) -> Iterator[ConditionFinding]:
    """Say that the group is too far behind; limits alone stand in it, so that it does not spin."""
    group, limit = look.group, look.spec.max_lag
    if group is None:
        return
    messages = sum(lag.messages for lag in group.behind.values())
    if limit.messages is not None and messages > limit.messages:
        yield holds("LagHigh", "TooManyMessages", f"More than {limit.messages} messages behind.")
    elif limit.time is not None and _older(group, now, limit.time.seconds):
        yield holds(
            "LagHigh", "TooOld", f"The oldest unread message is over {limit.time.text} old."
        )


def _older(group: SeenGroup, now: datetime, seconds: float) -> bool:
    oldest = [lag.oldest_ms for lag in group.behind.values() if lag.oldest_ms is not None]
    return bool(oldest) and now.astimezone(UTC).timestamp() - min(oldest) / 1000 > seconds


def status_of(
    look: GroupLook,
    planned: GroupPlan,
    now: datetime,
    *,
    problem: ContentRefusal | None = None,
    last: LastReset | None = None,
) -> GroupStatus:
    """Return the status after a look.

    `problem`: why `act` failed; `last`: what the reset came to.
    """
    found = [*planned.findings, *([problem.finding] if problem else ())]
    before = planned.record or look.status
    new = replace(
        before,
        observed_generation=look.me.generation,
        conditions=conditions(found, look.status.conditions, look.me.generation, now),
        last_reset=last or before.last_reset,
    )
    if planned.applies is not None and problem is None:
        new = replace(new, applied_hash=planned.applies, group_name=look.name)
    return _seen(look, new)


def _seen(look: GroupLook, status: GroupStatus) -> GroupStatus:
    if not (look.counts and look.known):
        return replace(status, state="Unknown", members=None, lag=None, topics=())
    group = look.group
    if group is None:
        return replace(status, state="Empty", members=0, lag="0", topics=())
    behind = group.behind
    lags = sorted(behind.items())[:TOPICS_MAX]
    return replace(
        status,
        state="Stable" if group.consumers else "Empty",
        members=group.consumers,
        lag=bucket(sum(lag.messages for lag in behind.values())),
        topics=tuple(_topic_lag(name, lag) for name, lag in lags),
    )


def _topic_lag(name: str, lag: GroupLag) -> TopicLag:
    return TopicLag(topic=name, lag=bucket(lag.messages))


def bucket(messages: int) -> str:
    """Return a lag to one digit: 7, ~20, ~300, ~4k. It does not change with every message."""
    if messages < 10:
        return str(messages)
    digits = str(messages)
    thousands = (len(digits) - 1) // 3
    zeros = (len(digits) - 1) % 3
    return f"~{digits[0]}{'0' * zeros}{UNITS[thousands]}"
