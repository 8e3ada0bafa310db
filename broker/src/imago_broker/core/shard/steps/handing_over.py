"""Giving leadership to another member, on request or before an orderly stop.

Puts are held, not refused. When the target has all of our log, one compare-and-set makes it the
leader of the next epoch; until its outcome is known, only that outcome tells who leads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.core.shard.effects import Answer, Leave
from imago_broker.core.shard.election import is_live, led_by
from imago_broker.core.shard.in_sync import former_after
from imago_broker.core.shard.state import HandoverState
from imago_broker.core.shard.steps.electing import next_epoch
from imago_broker.core.shard.values import MachineRole

if TYPE_CHECKING:
    from imago_broker.core.shard.events import HandoverAsked
    from imago_broker.core.shard.state import State, Transition
    from imago_broker.core.shard.values import ShardProgress
    from imago_broker.model.registry.shard import Member, ShardState


NOBODY = "no other member is in sync and connected"
NOT_THAT_ONE = "the member named is not in sync and connected"
LEADS_ALREADY = "it leads already"


def handover_asked(transition: Transition, event: HandoverAsked) -> None:
    """Begin a handover, or say why not."""
    state = transition.state
    if state.role is not MachineRole.LEADING:
        transition.do(Answer(event.request, done=False, text="this member does not lead"))
    elif state.leadership.handover is not None or state.stopping_ms is not None:
        transition.do(Answer(event.request, done=False, text="leadership is being handed over"))
    else:
        handover = HandoverState(event.request, event.target, transition.now_ms)
        transition.set_leading(handover=handover, admitted=None)


def hand_over(transition: Transition, handover: HandoverState, progress: ShardProgress) -> None:
    """Propose the target once it has everything, or give up when the time is over."""
    state, limits = transition.state, transition.limits
    if state.proposed is not None and state.proposed.shard.leader == handover.target:
        return
    target = handover.target or _best(state, progress, handover.wanted)
    if target is None or not _fit(state, progress, target):
        damaged = handover.wanted is not None and _damaged(state, handover.wanted)
        nobody = NOBODY if handover.wanted is None else NOT_THAT_ONE
        why = "its log has damage, and a whole one can lead" if damaged else nobody
        if handover.wanted == state.uuid:
            why = LEADS_ALREADY
        _give_up(transition, handover, why)
        return
    transition.set_leading(handover=replace(handover, target=target))
    waited_ms = transition.now_ms - handover.began_ms
    if waited_ms >= limits.handover_ms_max:
        _give_up(transition, handover, f"{target.uuid} did not catch up in {waited_ms} ms")
    elif transition.may_propose() and _ready(
        progress, target, patient=waited_ms < limits.handover_ms_max // 2
    ):
        transition.propose(_handed_over(transition, target))


def stop(transition: Transition, progress: ShardProgress, since_ms: int) -> None:
    """On an orderly stop: hand over if anybody can lead, else leave the shard without leader."""
    state = transition.state
    if transition.now_ms - since_ms >= transition.limits.stop_ms_max:
        transition.set(stopped=True)
        transition.do(Leave())
    elif state.leadership.handover is not None:
        hand_over(transition, state.leadership.handover, progress)
    elif _best(state, progress):
        transition.set_leading(handover=HandoverState(None, None, transition.now_ms))
    elif transition.may_propose():
        cause = f"{state.uuid} stops"
        transition.propose(replace(state.shard, leader=None, cause=cause, at_ms=0))


def _best(state: State, progress: ShardProgress, wanted: str | None = None) -> Member | None:
    """The in-sync follower that is furthest, of those with a whole log and room; or the wanted."""
    fit = [
        (not _damaged(state, member.uuid), -_crowding(state, member.uuid), follower.end, member)
        for member, follower in progress.followers.items()
        if _fit(state, progress, member) and wanted in (None, member.uuid)
    ]
    return max(fit)[3] if fit else None


def _fit(state: State, progress: ShardProgress, member: Member) -> bool:
    """Whether it may lead in our place: with damage only where no whole log would lead else."""
    if not _follows(state, progress, member):
        return False
    if not _damaged(state, member.uuid):
        return True
    goes_on = state.stopping_ms is None and not _damaged(state, state.uuid)
    return not goes_on and not any(
        _follows(state, progress, other) and not _damaged(state, other.uuid)
        for other in progress.followers
    )


def _follows(state: State, progress: ShardProgress, member: Member) -> bool:
    follower = progress.followers.get(member)
    return (
        follower is not None
        and follower.left_ms is None
        and member in state.shard.in_sync
        and is_live(member, state.live)
    )


def _damaged(state: State, uuid: str) -> bool:
    """Whether a member has said that a part of its log is out of service."""
    if uuid == state.uuid:
        return state.log.damaged
    info = state.live.get(uuid)
    return info is not None and info.damaged


def _crowding(state: State, uuid: str) -> int:
    """How little room a member has said that its disk has."""
    info = state.live.get(uuid)
    return 0 if info is None else info.crowding


def _ready(progress: ShardProgress, target: Member, *, patient: bool) -> bool:
    """Whether the target has everything, and those who wait for answers have theirs.

    For the latter no more than half of the time is spent: a third member may be slow.
    """
    has_all = progress.followers[target].end == progress.end
    return has_all and (not patient or progress.high_watermark == progress.end)


def _handed_over(transition: Transition, target: Member) -> ShardState:
    """The state in which the target leads, and in which we stay only if we do not stop."""
    state = transition.state
    members = state.shard.in_sync
    if state.stopping_ms is not None:
        members = tuple(member for member in members if member != state.member)
    after = led_by(state.shard, target, next_epoch(transition), "handover", in_sync=members)
    former = former_after(state.shard, members, transition.limits.min_in_sync)
    return replace(after, former=former)


def _give_up(transition: Transition, handover: HandoverState, why: str) -> None:
    transition.set_leading(handover=None)
    if handover.request is not None:
        transition.do(Answer(handover.request, done=False, text=why))
