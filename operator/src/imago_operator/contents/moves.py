"""What is done about an ImagoRebalance: a proposal, then step by step from what is there.

What is left to do follows from topics and shards alone, so an operator that dies between two
steps goes on where it was. Brokers empty whole shards themselves; single topics are moved here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from imago_operator.contents.conditions import ContentRefusal, conditions, holds, ready
from imago_operator.model import names
from imago_operator.model.wording import counted
from imago_operator.spec.rebalance import (
    Approval,
    Moved,
    Phase,
    Proposal,
    RebalanceMode,
    RebalanceStatus,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from imago_operator.contents.belonging import Claimant
    from imago_operator.contents.values import SeenShard, SeenTopic
    from imago_operator.model.state import ConditionFinding
    from imago_operator.spec.rebalance import RebalanceSpec

OVER: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED})
LEAVING: Final = frozenset({RebalanceMode.DRAIN, RebalanceMode.SEAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceLook:
    """One look at an ImagoRebalance."""

    me: Claimant
    spec: RebalanceSpec
    status: RebalanceStatus = field(default_factory=RebalanceStatus)
    refusal: ContentRefusal | None = None
    listed: bool = True
    """Whether brokers told of topics and shards."""
    topics: Mapping[str, SeenTopic] = field(default_factory=dict)
    shards: Mapping[int, SeenShard] = field(default_factory=dict)
    placed: frozenset[str] = frozenset()
    """Topics whose ImagoTopic says on which shards they are: they get no others."""

    @property
    def approved(self) -> bool:
        return (
            self.spec.approval is Approval.AUTO or self.me.annotations.get(names.APPROVE) == "true"
        )

    @property
    def stopped(self) -> bool:
        """Whether somebody wants it ended."""
        return self.me.annotations.get(names.STOP) == "true"

    @property
    def whole(self) -> bool:
        """Whether shards are emptied as a whole: brokers do it, for topics to come too."""
        return self.spec.mode in LEAVING and not (
            self.spec.topics.include or self.spec.topics.exclude
        )


@dataclass(frozen=True, slots=True)
class DrainShard:
    """Have brokers close a shard's topics, and with `move` open them elsewhere."""

    shard: int
    move: bool


@dataclass(frozen=True, slots=True)
class Undrain:
    """Take a drain back."""

    shard: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Give a topic queues on more shards."""

    topic: str
    to: tuple[int, ...]
    queues: int
    """How many that opens."""


@dataclass(frozen=True, slots=True)
class LeaveShard:
    """Have a topic take no more messages on a shard, and with `move` go on elsewhere."""

    topic: str
    shard: int
    move: bool
    queues: int
    """How many that closes."""


Step = DrainShard | Undrain | Spread | LeaveShard


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancePlan:
    """What is done now, all at one time; `status` is written before."""

    status: RebalanceStatus
    steps: tuple[Step, ...] = ()
    again: bool = False
    """Whether more is to come that shows in no object."""


def plan(look: RebalanceLook, now: datetime) -> RebalancePlan:
    """Return what is to be done now."""
    if look.status.phase in OVER or look.me.deleting:
        return RebalancePlan(status=look.status)
    if look.me.paused:
        text = "Paused: remove the annotation imago.dev/pause-reconciliation to continue."
        return _said(look, now, (holds("Paused", "Annotation", text),))
    if look.refusal is not None:
        return _said(look, now, (look.refusal.finding,))
    if not look.listed:
        return _said(look, now, (ContentRefusal("ClusterNotReady", "No broker answers.").finding,))
    if look.stopped or look.status.phase is Phase.STOPPING:
        return _stopping(look, now)
    if look.status.phase in (None, Phase.PROPOSED):
        return _proposed(look, now)
    return _running(look, now)


def _proposed(look: RebalanceLook, now: datetime) -> RebalancePlan:
    proposal = proposed(look)
    status = replace(look.status, plan=proposal, progress=Moved(remaining=proposal.topics))
    if look.approved:
        begun = replace(status, phase=Phase.APPROVED)
        text = f"{counted(proposal.topics, 'topic')} to change."
        return _said(look, now, (ContentRefusal("Approved", text).finding,), begun, again=True)
    text = f"{counted(proposal.topics, 'topic')} to change; imago.dev/approve=true starts it."
    waits = replace(status, phase=Phase.PROPOSED)
    return _said(look, now, (ContentRefusal("ApprovalRequired", text).finding,), waits)


def _running(look: RebalanceLook, now: datetime) -> RebalancePlan:
    remaining = left(look)
    total = look.status.plan.topics if look.status.plan else 0
    progress = Moved(done=max(0, total - remaining), remaining=remaining)
    status = replace(look.status, phase=Phase.RUNNING, progress=progress)
    todo = tuple(steps(look))
    if not todo and reached(look):
        over = replace(status, phase=Phase.SUCCEEDED, progress=Moved(done=max(total, 0)))
        return _said(look, now, (ready("Succeeded", _ending(look)),), over)
    if obstacle := _obstacle(look):
        return _said(look, now, (obstacle,), status, again=True)
    text = f"{counted(remaining, 'topic')} left."
    if blocked := sorted({s.blocked for s in _mine(look) if s.blocked}):
        text += f" Brokers wait: {blocked[0]}"
    said = ContentRefusal("Running", text).finding
    now_done = todo if look.whole else todo[: look.spec.concurrent_topics]
    return replace(_said(look, now, (said,), status, again=True), steps=now_done)


def _stopping(look: RebalanceLook, now: datetime) -> RebalancePlan:
    """Take back what brokers do by themselves; what was moved by name stays where it is."""
    begun = look.status.phase not in (None, Phase.PROPOSED)
    back = tuple(Undrain(s.id) for s in _mine(look) if s.draining) if look.whole and begun else ()
    if back:
        text = f"{', '.join(f'shard-{one.shard}' for one in back)} takes topics again."
        status = replace(look.status, phase=Phase.STOPPING)
        said = ContentRefusal("Stopping", text).finding
        return replace(_said(look, now, (said,), status, again=True), steps=back)
    return failed(look, "Stopped", "imago.dev/stop ended it; what was moved stays.", now)


def failed(look: RebalanceLook, reason: str, message: str, now: datetime) -> RebalancePlan:
    """Return the end of a rebalance that does not reach what it was for."""
    status = replace(look.status, phase=Phase.FAILED)
    return _said(look, now, (ContentRefusal(reason, message).finding,), status)


def refused(
    look: RebalanceLook, planned: RebalancePlan, problem: str, now: datetime
) -> RebalanceStatus:
    """Return the status when brokers did not do what they were asked for."""
    found = (ContentRefusal("BrokerRejected", problem).finding,)
    said = conditions(found, planned.status.conditions, look.me.generation, now)
    return replace(planned.status, conditions=said)


def _said(
    look: RebalanceLook,
    now: datetime,
    found: tuple[ConditionFinding, ...],
    status: RebalanceStatus | None = None,
    *,
    again: bool = False,
) -> RebalancePlan:
    base, generation = status or look.status, look.me.generation
    new = replace(
        base,
        observed_generation=generation,
        conditions=conditions(found, look.status.conditions, generation, now),
    )
    return RebalancePlan(status=new, again=again)


def concerned(look: RebalanceLook) -> Iterator[SeenTopic]:
    """Yield the topics that the rebalance is about; groups' own go with whole shards alone."""
    wanted = look.spec.topics
    for name, topic in sorted(look.topics.items()):
        if topic.derived and not look.whole:
            continue
        included = not wanted.include or any(fnmatchcase(name, p) for p in wanted.include)
        if included and not any(fnmatchcase(name, p) for p in wanted.exclude):
            yield topic


def targets(look: RebalanceLook) -> tuple[int, ...]:
    """Return the shards that topics are to come to."""
    if look.spec.mode is RebalanceMode.FULL:
        return tuple(sorted(shard.id for shard in look.shards.values() if shard.free))
    return tuple(sorted(look.spec.shards))


def steps(look: RebalanceLook) -> Iterator[Step]:
    """Yield all that is left to be done, in the order in which it is done."""
    move = look.spec.mode is RebalanceMode.DRAIN
    if look.whole:
        for shard in _mine(look):
            if not shard.draining and not shard.drained:
                yield DrainShard(shard.id, move)
    elif look.spec.mode in LEAVING:
        for topic in concerned(look):
            for number in sorted(topic.open_on & set(look.spec.shards)):
                yield LeaveShard(topic.name, number, move, topic.shards[number].open)
    else:
        yield from _spreads(look)


def _spreads(look: RebalanceLook) -> Iterator[Spread]:
    for topic in concerned(look):
        missing = tuple(n for n in targets(look) if n not in topic.open_on)
        # What is closed everywhere was closed on purpose.
        if missing and topic.open_on and topic.name not in look.placed:
            each = max(topic.shards[n].open for n in topic.open_on)
            yield Spread(topic.name, missing, each * len(missing))


def _mine(look: RebalanceLook) -> list[SeenShard]:
    """Return the shards that are to be emptied, as far as there are any: the others are gone."""
    return [look.shards[n] for n in sorted(look.spec.shards) if n in look.shards]


def left(look: RebalanceLook) -> int:
    """Return how many topics are not yet as they are to be."""
    if not look.whole:
        return len({step.topic for step in steps(look) if isinstance(step, Spread | LeaveShard)})
    mine = {shard.id for shard in _mine(look)}
    return sum(bool(topic.open_on & mine) for topic in concerned(look))


def reached(look: RebalanceLook) -> bool:
    """Whether brokers have finished what was left to them."""
    return not look.whole or all(s.drained or s.to_move == 0 for s in _mine(look))


def proposed(look: RebalanceLook) -> Proposal:
    """Return what would be done."""
    if look.whole:
        return _proposed_whole(look)
    todo = list(steps(look))
    opened = sum(step.queues for step in todo if isinstance(step, Spread))
    sealed = sum(step.queues for step in todo if isinstance(step, LeaveShard))
    moved = sealed if look.spec.mode is RebalanceMode.DRAIN else 0
    return Proposal(topics=left(look), opened=opened or moved, sealed=sealed)


def _proposed_whole(look: RebalanceLook) -> Proposal:
    mine = {shard.id for shard in _mine(look)}
    free = sum(shard.free for shard in look.shards.values() if shard.id not in mine)
    opened = sealed = 0
    for topic in concerned(look):
        closed = [topic.shards[n].open for n in topic.open_on & mine]
        room = free - len(topic.open_on - mine)
        sealed += sum(closed)
        opened += sum(sorted(closed, reverse=True)[: max(0, room)])
    move = look.spec.mode is RebalanceMode.DRAIN
    return Proposal(topics=left(look), opened=opened if move else 0, sealed=sealed)


def _obstacle(look: RebalanceLook) -> ConditionFinding | None:
    """Return what has to change before anything can be done."""
    if look.spec.mode is RebalanceMode.FILL:
        known = look.shards
        closed = [n for n in targets(look) if n not in known or not known[n].free]
        if closed:
            listed = ", ".join(f"shard-{n}" for n in closed)
            return ContentRefusal(
                "NoRoom", f"{listed}: missing, cordoned or without master."
            ).finding
    if look.spec.mode is RebalanceMode.DRAIN:
        free = [s for s in look.shards.values() if s.free and s.id not in look.spec.shards]
        if not free and _mine(look):
            return ContentRefusal("NoRoom", "No other shard takes topics.").finding
    return None


def _ending(look: RebalanceLook) -> str:
    unread = sum(shard.unread for shard in _mine(look))
    if look.spec.mode in LEAVING and unread:
        left = "1 message is" if unread == 1 else f"{unread} messages are"
        return f"The queues are closed; {left} still unread."
    return ""
