"""Leading: who is waited for, who joins and who leaves the set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.core.shard.effects import (
    AcceptPuts,
    Answer,
    HoldPuts,
    Lead,
    StepDown,
    Unfollow,
    WaitFor,
)
from imago_broker.core.shard.in_sync import admissible, crowded_out, gone, is_full, resized
from imago_broker.core.shard.state import LeaderState
from imago_broker.core.shard.values import MachineRole

if TYPE_CHECKING:
    from imago_broker.core.shard.events import Led, NotLed
    from imago_broker.core.shard.state import HandoverState, Transition
    from imago_broker.core.shard.values import ShardProgress
    from imago_broker.model.registry.shard import Member


YIELD_MS = 5000
"""How long a member that could not begin an epoch lets others lead."""


def lead(transition: Transition) -> None:
    """Begin the leadership that the shard's state gives us, or give it back: see `not_led`."""
    state = transition.state
    if transition.now_ms < state.yields_ms:
        if transition.may_propose():
            cause = f"{state.uuid} has no room on its disk to lead"
            transition.propose(replace(state.shard, leader=None, cause=cause, at_ms=0))
        return
    epoch = state.shard.epoch
    if state.following is not None:
        transition.do(Unfollow())
    transition.set(
        role=MachineRole.LEADING,
        epoch=epoch,
        epoch_seen=epoch,
        following=None,
        reconciled=False,
        vacancy=None,
        leadership=LeaderState(),
    )
    transition.do(Lead(epoch))


def led(transition: Transition, event: Led) -> None:
    """Our epoch is on disk: from here on it is ours to fill."""
    state = transition.state
    if state.role is MachineRole.LEADING and state.epoch == event.epoch:
        transition.set_leading(led=True, led_ms=transition.now_ms, epoch_start=event.log.end)
        _answer_forced(transition, done=True, text=f"leads in epoch {event.epoch}")


def not_led(transition: Transition, event: NotLed) -> None:
    """Our disk has no room for the epoch: another member may lead, and we try again later."""
    state = transition.state
    if (
        state.role is MachineRole.LEADING
        and state.epoch == event.epoch
        and not state.leadership.led
    ):
        transition.set(
            role=MachineRole.ELECTING,
            epoch_seen=event.epoch_seen,
            yields_ms=transition.now_ms + YIELD_MS,
            leadership=LeaderState(),
        )
        why = f"no room on the disk of {state.uuid} to note epoch {event.epoch}: free some first"
        _answer_forced(transition, done=False, text=why)
        _answer_handover(transition, state.leadership.handover, done=False, text=why)


def _answer_forced(transition: Transition, *, done: bool, text: str) -> None:
    """Tell who forced an election what came of it."""
    forced = transition.state.forced
    if forced is not None:
        transition.set(forced=None)
        transition.do(Answer(forced.request, done=done, text=text))


def govern(transition: Transition) -> None:
    """Say whom we wait for and which puts we take, where that has changed."""
    state, leadership = transition.state, transition.state.leadership
    me = state.member
    if not leadership.led or me is None:
        return
    proposal = None if state.proposed is None else state.proposed.shard
    waits = transition.rules.waited_for(state.shard, proposal, leadership.admitted, me)
    if waits != leadership.waits:
        transition.set_leading(waits=waits)
        transition.do(WaitFor(waits))
    takers = [each for each in state.shard.in_sync if each == me or not is_full(each, state.live)]
    replicated = len(takers) >= transition.limits.min_in_sync
    held = leadership.handover is not None or state.stopping_ms is not None
    alone = proposal is None or proposal.leader is not None
    puts: AcceptPuts | HoldPuts = HoldPuts(replicated, alone) if held else AcceptPuts(replicated)
    if puts != leadership.puts:
        transition.set_leading(puts=puts)
        transition.do(puts)


def write_again(transition: Transition) -> None:
    """Write the shard's state again, whose node somebody has deleted.

    The in-sync set is the one that we know: whoever we wait for besides, none may be left out.
    """
    shard = transition.state.shard
    if transition.may_propose():
        cause = "the state was deleted, its leader wrote it again"
        transition.propose(replace(shard, cause=cause, at_ms=0))


def step_down(transition: Transition, why: str) -> None:
    """Serve no longer as leader."""
    state = transition.state
    transition.set(role=MachineRole.ELECTING, leadership=LeaderState())
    transition.do(StepDown(why))
    _answer_forced(transition, done=False, text=why)
    handover = state.leadership.handover
    target = None if handover is None else handover.target
    done = state.shard.leader is not None and state.shard.leader == target
    _answer_handover(transition, handover, done=done, text=why)


def _answer_handover(
    transition: Transition, handover: HandoverState | None, *, done: bool, text: str
) -> None:
    """Tell who asked for a handover what came of it."""
    if handover is not None and handover.request is not None:
        transition.do(Answer(handover.request, done=done, text=text))


# ---- the in-sync set ---------------------------------------------------------------------


def look_after_set(transition: Transition, progress: ShardProgress) -> None:
    """Propose that members leave or join the in-sync set, where that is due."""
    state, leadership = transition.state, transition.state.leadership
    since_ms = transition.now_ms - leadership.looked_ms if leadership.looked_ms else 0
    slept = since_ms >= transition.limits.lost_ms_max and not leadership.slept
    transition.set_leading(looked_ms=transition.now_ms, slept=slept)
    if slept:
        return  # we stood still ourselves: what followers have said meanwhile is not read yet
    leaving = {
        member: why
        for member in state.shard.in_sync
        if member != state.member
        and (why := gone(member, progress, leadership.led_ms, transition.now_ms, transition.limits))
    }
    staying = [member for member in state.shard.in_sync if member not in leaving]
    least = transition.limits.min_in_sync
    if state.member and (full := crowded_out(staying, state.member, state.live, least)):
        leaving[full] = f"the disk of {full.uuid} is full"
    joining = _joining(transition, progress)
    if not leaving and not joining:
        _admit(transition, progress)
        return
    inside = {member.uuid: member for member in state.shard.in_sync if member not in leaving}
    inside.update({member.uuid: member for member in joining})
    cause = "; ".join([*leaving.values(), *(f"{member.uuid} joins" for member in joining)])
    members = tuple(sorted(inside.values()))
    transition.set_leading(admitted=None)
    transition.propose(
        resized(state.shard, members, cause[:200], min_in_sync=transition.limits.min_in_sync)
    )


def _joining(transition: Transition, progress: ShardProgress) -> list[Member]:
    """Followers that hold all that an in-sync member must."""
    state, leadership = transition.state, transition.state.leadership
    found = []
    for member, follower in progress.followers.items():
        named = transition.rules.joiner(member, follower, state.live)
        if named is None or named in state.shard.in_sync or _needs_no(transition, named):
            continue
        if gone(named, progress, leadership.led_ms, transition.now_ms, transition.limits):
            continue  # it would have to leave at once
        if transition.rules.joinable(follower, progress, leadership.epoch_start):
            found.append(named)
    return found


def _needs_no(transition: Transition, member: Member) -> bool:
    """Whether the set does without a member whose disk is full: it would have to leave."""
    state = transition.state
    enough = len(state.shard.in_sync) >= transition.limits.min_in_sync
    return enough and is_full(member, state.live)


def _admit(transition: Transition, progress: ShardProgress) -> None:
    """Wait for one follower that keeps up, so that it can join; for a while only."""
    state, limits = transition.state, transition.limits
    leadership, now_ms = state.leadership, transition.now_ms
    waited_ms = now_ms - leadership.admission_ms
    if leadership.admitted is not None:
        follower = progress.followers.get(leadership.admitted)
        fit = follower and admissible(follower, leadership.epoch_start, now_ms, limits)
        if not fit or waited_ms >= limits.lag_ms_max:
            transition.set_leading(admitted=None, admission_ms=now_ms)
        return
    if leadership.admission_ms and waited_ms < limits.lag_ms_max:
        return
    for member, follower in progress.followers.items():
        named = transition.rules.joiner(member, follower, state.live)
        if named is None or named in state.shard.in_sync or _needs_no(transition, named):
            continue
        if admissible(follower, leadership.epoch_start, now_ms, limits):
            transition.set_leading(admitted=member, admission_ms=now_ms)
            return
