"""One step of a member: what an event changes, and what follows from the state after it.

An event changes facts and nothing else (`_FACTS`). What the member does then depends on its role
and on its outlook, which is what the facts say about leadership (`_ACTIONS`). So a lost, repeated
or late event never leaves a member half-way: the next one that tells the same facts goes on.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from imago_broker.core.shard import events
from imago_broker.core.shard.effects import Leave, Mark, Note
from imago_broker.core.shard.election import is_live, leader_lives
from imago_broker.core.shard.state import (
    RULES,
    Proposed,
    Rules,
    State,
    Transition,
    confirmed_epoch,
)
from imago_broker.core.shard.steps import electing, following, handing_over, leading
from imago_broker.core.shard.values import MachineRole, ShardLimits
from imago_broker.model.registry.shard import NOT_CREATED, ShardState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_broker.core.shard.effects import Effect
    from imago_broker.core.shard.values import Live, ShardProgress

EPOCH_MAX = 1 << 62
"""A peer that speaks of more is not believed."""

RETRY_MS = 50
"""Pause after a proposal that was refused."""


class Outlook(Enum):
    """What the facts say about the leadership of the shard."""

    BLIND = "blind"
    """We are not registered, or have not yet seen what the coordinator holds."""
    VACANT = "vacant"
    """No live member leads."""
    THEIRS = "theirs"
    """Another live member leads."""
    MINE = "mine"
    """We lead, in an epoch that we have begun or may begin."""


def outlook(state: State) -> Outlook:
    """Classify the facts."""
    if state.member is None or not state.viewed:
        return Outlook.BLIND
    shard = state.shard
    if shard.leads(state.member):
        begun = state.role is MachineRole.LEADING and state.epoch == shard.epoch
        unused = shard.epoch > state.epoch_seen
        current = confirmed_epoch(state) <= shard.epoch and (begun or unused)
        return Outlook.MINE if current else Outlook.VACANT
    return Outlook.THEIRS if leader_lives(shard, state.live) else Outlook.VACANT


def step(
    state: State, event: events.Event, now_ms: int, limits: ShardLimits, rules: Rules = RULES
) -> tuple[State, list[Effect]]:
    """Return the state after an event, and what is to be done. `now_ms` is monotonic."""
    if state.stopped:
        return state, []
    transition = Transition(state, now_ms, limits, rules)
    _FACTS[type(event)](transition, event)
    role = transition.state.role
    _ACTIONS[role, outlook(transition.state)](transition)
    if isinstance(event, events.Tick) and transition.state.role is MachineRole.LEADING:
        _look_after(transition, event.progress)
    if transition.state.role is MachineRole.LEADING:
        leading.govern(transition)
    return transition.state, transition.effects


def _look_after(transition: Transition, progress: ShardProgress) -> None:
    state = transition.state
    if not state.leadership.led:
        return
    if state.shard.version == NOT_CREATED:
        leading.write_again(transition)
    elif state.stopping_ms is not None:
        handing_over.stop(transition, progress, state.stopping_ms)
    elif state.leadership.handover is not None:
        handing_over.hand_over(transition, state.leadership.handover, progress)
    elif transition.may_propose():
        leading.look_after_set(transition, progress)


# ---- facts: one function an event --------------------------------------------------------


def _registered(transition: Transition, event: events.Registered) -> None:
    transition.set(
        member=event.member,
        suspended=False,
        viewed=False,
        fresh_version=None,
        proposed=None,
        retry_ms=0,
    )
    transition.ask_again()


def _view_seen(transition: Transition, event: events.ViewSeen) -> None:
    state = transition.state
    if state.member is None:
        return
    fresh = event.ticket != 0 and event.ticket == state.question
    if fresh:
        transition.set(question=0)
        if state.proposed is not None and state.proposed.in_doubt:
            transition.set(proposed=None)
    # A lower version is older than what we know, unless we knew it when we asked: then the
    # coordinator itself has lost its memory.
    older = event.shard.version < state.shard.version
    if older and not (fresh and event.shard.version < state.question_version):
        # A late snapshot; or the node was deleted, and perhaps made again.
        transition.ask()
        return
    shard = event.shard
    if shard.version == NOT_CREATED and _stands(state, event.live):
        shard = replace(state.shard, version=NOT_CREATED)
    if fresh:
        transition.set(fresh_version=event.shard.version, viewed=True)
    if transition.state.viewed:
        transition.set(live=event.live, known=event.known, log=event.log)
        _take(transition, shard)


def _stands(state: State, live: Live) -> bool:
    """Whether the leadership that we know of goes on without its node, until the leader writes it
    again.

    The leader knows who is in sync, and nobody else does: with the leader gone, our own knowledge
    of that may be old. A leader that may have given leadership away does not write itself again,
    and its registration says no longer that it leads.
    """
    leader = state.shard.leader
    if leader is None or not is_live(leader, live):
        return False
    if leader != state.member:
        info = live[leader.uuid]
        return info.leads and info.epoch_seen == state.shard.epoch
    given = state.proposed is not None and state.proposed.shard.leader != leader
    return state.role is MachineRole.LEADING and not given


def _take(transition: Transition, shard: ShardState) -> None:
    """Know a newer state of the shard."""
    transition.set(shard=shard)
    if transition.state.unclean and transition.state.member in shard.in_sync:
        # Whoever put this life of ours into the set has seen that it lacks nothing.
        transition.set(unclean=False)
        transition.do(Mark(unclean=False))


def _proposal_done(transition: Transition, event: events.ProposalDone) -> None:
    if _proposed(transition, event.ticket) is not None:
        transition.set(proposed=None)
    if event.shard.version > transition.state.shard.version:
        _take(transition, event.shard)


def _proposal_refused(transition: Transition, event: events.ProposalRefused) -> None:
    if _proposed(transition, event.ticket) is not None:
        transition.set(proposed=None, fresh_version=None, retry_ms=transition.now_ms + RETRY_MS)
        transition.do(Note(f"proposal refused: {event.reason}"))
        transition.ask_again()


def _proposal_unknown(transition: Transition, event: events.ProposalUnknown) -> None:
    proposed = _proposed(transition, event.ticket)
    if proposed is not None:
        transition.set(proposed=replace(proposed, in_doubt=True))
        transition.ask_again()


def _proposed(transition: Transition, ticket: int) -> Proposed | None:
    """Return what is proposed, if an answer with this ticket is about it."""
    proposed = transition.state.proposed
    return proposed if proposed is not None and proposed.ticket == ticket else None


def _suspended(transition: Transition, _: events.SessionSuspended) -> None:
    transition.set(suspended=True)


def _resumed(transition: Transition, _: events.SessionResumed) -> None:
    transition.set(suspended=False)
    if transition.state.member is not None:
        transition.ask_again()


def _lost(transition: Transition, _: events.SessionLost) -> None:
    transition.set(
        member=None,
        suspended=False,
        lease_until_ms=0,
        viewed=False,
        fresh_version=None,
        question=0,
        proposed=None,
    )


def _lease_renewed(transition: Transition, event: events.LeaseRenewed) -> None:
    transition.set(lease_until_ms=max(event.until_ms, transition.state.lease_until_ms))


def _epoch_heard(transition: Transition, event: events.EpochHeard) -> None:
    if transition.state.epoch_heard < event.epoch < EPOCH_MAX:
        transition.set(epoch_heard=event.epoch)
        if event.own:
            transition.set(epoch_own=event.epoch)
        elif (
            transition.state.member is not None and confirmed_epoch(transition.state) < event.epoch
        ):
            transition.ask()


def _handover_asked(transition: Transition, event: events.HandoverAsked) -> None:
    handing_over.handover_asked(transition, event)


def _elect_asked(transition: Transition, event: events.ElectAsked) -> None:
    known = transition.state.shard
    if known.version == NOT_CREATED and outlook(transition.state) is Outlook.THEIRS:
        # A person is not held up by a leadership that only we remember.
        transition.set(shard=ShardState())
    electing.elect_asked(transition, event, vacant=outlook(transition.state) is Outlook.VACANT)
    if transition.state.forced is None:
        transition.set(shard=known)


def _stop_asked(transition: Transition, _: events.StopAsked) -> None:
    if transition.state.stopping_ms is None:
        transition.set(stopping_ms=transition.now_ms)


def _nothing(_: Transition, __: events.Tick) -> None:
    """Time is no fact; what it makes due is found by the actions."""


_FACTS: Mapping[type, Callable[..., None]] = {
    events.Registered: _registered,
    events.ViewSeen: _view_seen,
    events.ProposalDone: _proposal_done,
    events.ProposalRefused: _proposal_refused,
    events.ProposalUnknown: _proposal_unknown,
    events.SessionSuspended: _suspended,
    events.SessionResumed: _resumed,
    events.SessionLost: _lost,
    events.LeaseRenewed: _lease_renewed,
    events.Led: leading.led,
    events.NotLed: leading.not_led,
    events.Welcomed: following.welcomed,
    events.EpochHeard: _epoch_heard,
    events.HandoverAsked: _handover_asked,
    events.ElectAsked: _elect_asked,
    events.StopAsked: _stop_asked,
    events.Tick: _nothing,
}


# ---- actions: one function a role and outlook ---------------------------------------------


def _stay(_: Transition) -> None:
    """Go on as before."""


def _out(transition: Transition) -> None:
    transition.set(role=MachineRole.OUT, vacancy=None)
    if transition.state.stopping_ms is not None:
        transition.set(stopped=True)
        transition.do(Leave())


def _part(transition: Transition) -> None:
    following.unfollow(transition)
    _out(transition)


def _part_and_stand(transition: Transition) -> None:
    following.unfollow(transition)
    electing.stand(transition)


def _deposed(transition: Transition) -> None:
    leading.step_down(transition, "the session with the coordinator is lost")
    _out(transition)


def _step_down_and_stand(transition: Transition) -> None:
    leading.step_down(transition, transition.state.shard.cause)
    electing.stand(transition)


def _step_down_and_follow(transition: Transition) -> None:
    leading.step_down(transition, transition.state.shard.cause)
    following.follow(transition)


_ACTIONS: Mapping[tuple[MachineRole, Outlook], Callable[[Transition], None]] = {
    (MachineRole.OUT, Outlook.BLIND): _out,
    (MachineRole.OUT, Outlook.VACANT): electing.stand,
    (MachineRole.OUT, Outlook.THEIRS): following.follow,
    (MachineRole.OUT, Outlook.MINE): leading.lead,
    (MachineRole.ELECTING, Outlook.BLIND): _out,
    (MachineRole.ELECTING, Outlook.VACANT): electing.stand,
    (MachineRole.ELECTING, Outlook.THEIRS): following.follow,
    (MachineRole.ELECTING, Outlook.MINE): leading.lead,
    (MachineRole.FOLLOWING, Outlook.BLIND): _part,
    (MachineRole.FOLLOWING, Outlook.VACANT): _part_and_stand,
    (MachineRole.FOLLOWING, Outlook.THEIRS): following.follow,
    (MachineRole.FOLLOWING, Outlook.MINE): leading.lead,
    (MachineRole.LEADING, Outlook.BLIND): _deposed,
    (MachineRole.LEADING, Outlook.VACANT): _step_down_and_stand,
    (MachineRole.LEADING, Outlook.THEIRS): _step_down_and_follow,
    (MachineRole.LEADING, Outlook.MINE): _stay,
}
