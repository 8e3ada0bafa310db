"""One step of a member: what an event changes, and what follows from the state after it.

An event changes facts and nothing else (`_FACTS`). What the member does then depends on its role
and on its outlook, which is what the facts say about leadership (`_ACTIONS`). So a lost, repeated
or late event never leaves a member half-way: the next one that tells the same facts goes on.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from imago_broker.core.shard import electing, events, following, handing_over, leading
from imago_broker.core.shard.effects import Leave, Mark, Note
from imago_broker.core.shard.election import leader_lives
from imago_broker.core.shard.state import RULES, Rules, State, Turn, confirmed_epoch
from imago_broker.core.shard.values import Limits, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_broker.core.shard.effects import Effect
    from imago_broker.core.shard.values import Progress
    from imago_broker.model.shard import ShardState

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
        begun = state.role is Role.LEADING and state.epoch == shard.epoch
        unused = shard.epoch > state.epoch_seen
        current = confirmed_epoch(state) <= shard.epoch and (begun or unused)
        return Outlook.MINE if current else Outlook.VACANT
    return Outlook.THEIRS if leader_lives(shard, state.live) else Outlook.VACANT


def step(
    state: State, event: events.Event, now_ms: int, limits: Limits, rules: Rules = RULES
) -> tuple[State, list[Effect]]:
    """Return the state after an event, and what is to be done. `now_ms` is monotonic."""
    if state.stopped:
        return state, []
    turn = Turn(state, now_ms, limits, rules)
    _FACTS[type(event)](turn, event)
    role = turn.state.role
    _ACTIONS[role, outlook(turn.state)](turn)
    if isinstance(event, events.Tick) and turn.state.role is Role.LEADING:
        _look_after(turn, event.progress)
    if turn.state.role is Role.LEADING:
        leading.govern(turn)
    return turn.state, turn.effects


def _look_after(turn: Turn, progress: Progress) -> None:
    state = turn.state
    if not state.led:
        return
    if state.stopping_ms is not None:
        handing_over.stop(turn, progress, state.stopping_ms)
    elif state.handover is not None:
        handing_over.hand_over(turn, state.handover, progress)
    elif turn.may_propose():
        leading.look_after_set(turn, progress)


# ---- facts: one function an event --------------------------------------------------------


def _registered(turn: Turn, event: events.Registered) -> None:
    turn.set(
        member=event.member,
        suspended=False,
        viewed=False,
        fresh_version=None,
        proposal=None,
        in_doubt=False,
        retry_ms=0,
    )
    turn.ask_again()


def _view_seen(turn: Turn, event: events.ViewSeen) -> None:
    state = turn.state
    if state.member is None:
        return
    fresh = event.ticket != 0 and event.ticket == state.question
    if fresh:
        turn.set(question=0)
        if state.in_doubt:
            turn.set(proposal=None, in_doubt=False)
    # A lower version is older than what we know, unless we knew it when we asked: then the
    # coordinator itself has lost its memory.
    older = event.shard.version < state.shard.version
    if older and not (fresh and event.shard.version < state.question_version):
        return
    if fresh:
        turn.set(fresh_version=event.shard.version, viewed=True)
    if turn.state.viewed:
        turn.set(live=event.live, known=event.known, log=event.log)
        _take(turn, event.shard)


def _take(turn: Turn, shard: ShardState) -> None:
    """Know a newer state of the shard."""
    turn.set(shard=shard)
    if turn.state.unclean and turn.state.member in shard.in_sync:
        # Whoever put this life of ours into the set has seen that it lacks nothing.
        turn.set(unclean=False)
        turn.do(Mark(unclean=False))


def _proposal_done(turn: Turn, event: events.ProposalDone) -> None:
    if event.ticket == turn.state.proposal_ticket:
        turn.set(proposal=None, in_doubt=False)
    if event.shard.version > turn.state.shard.version:
        _take(turn, event.shard)


def _proposal_refused(turn: Turn, event: events.ProposalRefused) -> None:
    if turn.state.proposal is not None and event.ticket == turn.state.proposal_ticket:
        turn.set(proposal=None, in_doubt=False, fresh_version=None, retry_ms=turn.now_ms + RETRY_MS)
        turn.do(Note(f"proposal refused: {event.reason}"))
        turn.ask_again()


def _proposal_unknown(turn: Turn, event: events.ProposalUnknown) -> None:
    if turn.state.proposal is not None and event.ticket == turn.state.proposal_ticket:
        turn.set(in_doubt=True)
        turn.ask_again()


def _suspended(turn: Turn, _: events.SessionSuspended) -> None:
    turn.set(suspended=True)


def _resumed(turn: Turn, _: events.SessionResumed) -> None:
    turn.set(suspended=False)
    if turn.state.member is not None:
        turn.ask_again()


def _lost(turn: Turn, _: events.SessionLost) -> None:
    turn.set(
        member=None,
        suspended=False,
        lease_until_ms=0,
        viewed=False,
        fresh_version=None,
        question=0,
        proposal=None,
        in_doubt=False,
    )


def _lease_renewed(turn: Turn, event: events.LeaseRenewed) -> None:
    turn.set(lease_until_ms=max(event.until_ms, turn.state.lease_until_ms))


def _epoch_heard(turn: Turn, event: events.EpochHeard) -> None:
    if turn.state.epoch_heard < event.epoch < EPOCH_MAX:
        turn.set(epoch_heard=event.epoch)
        if event.own:
            turn.set(epoch_own=event.epoch)
        elif turn.state.member is not None and confirmed_epoch(turn.state) < event.epoch:
            turn.ask()


def _handover_asked(turn: Turn, event: events.HandoverAsked) -> None:
    handing_over.handover_asked(turn, event)


def _elect_asked(turn: Turn, event: events.ElectAsked) -> None:
    electing.elect_asked(turn, event, vacant=outlook(turn.state) is Outlook.VACANT)


def _stop_asked(turn: Turn, _: events.StopAsked) -> None:
    if turn.state.stopping_ms is None:
        turn.set(stopping_ms=turn.now_ms)


def _nothing(_: Turn, __: events.Tick) -> None:
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
    events.Welcomed: following.welcomed,
    events.EpochHeard: _epoch_heard,
    events.HandoverAsked: _handover_asked,
    events.ElectAsked: _elect_asked,
    events.StopAsked: _stop_asked,
    events.Tick: _nothing,
}


# ---- actions: one function a role and outlook ---------------------------------------------


def _stay(_: Turn) -> None:
    """Go on as before."""


def _out(turn: Turn) -> None:
    turn.set(role=Role.OUT, vacant_ms=None, waiting="")
    if turn.state.stopping_ms is not None:
        turn.set(stopped=True)
        turn.do(Leave())


def _part(turn: Turn) -> None:
    following.unfollow(turn)
    _out(turn)


def _part_and_stand(turn: Turn) -> None:
    following.unfollow(turn)
    electing.stand(turn)


def _deposed(turn: Turn) -> None:
    leading.step_down(turn, "the session with the coordinator is lost")
    _out(turn)


def _step_down_and_stand(turn: Turn) -> None:
    leading.step_down(turn, turn.state.shard.cause)
    electing.stand(turn)


def _step_down_and_follow(turn: Turn) -> None:
    leading.step_down(turn, turn.state.shard.cause)
    following.follow(turn)


_ACTIONS: Mapping[tuple[Role, Outlook], Callable[[Turn], None]] = {
    (Role.OUT, Outlook.BLIND): _out,
    (Role.OUT, Outlook.VACANT): electing.stand,
    (Role.OUT, Outlook.THEIRS): following.follow,
    (Role.OUT, Outlook.MINE): leading.lead,
    (Role.ELECTING, Outlook.BLIND): _out,
    (Role.ELECTING, Outlook.VACANT): electing.stand,
    (Role.ELECTING, Outlook.THEIRS): following.follow,
    (Role.ELECTING, Outlook.MINE): leading.lead,
    (Role.FOLLOWING, Outlook.BLIND): _part,
    (Role.FOLLOWING, Outlook.VACANT): _part_and_stand,
    (Role.FOLLOWING, Outlook.THEIRS): following.follow,
    (Role.FOLLOWING, Outlook.MINE): leading.lead,
    (Role.LEADING, Outlook.BLIND): _deposed,
    (Role.LEADING, Outlook.VACANT): _step_down_and_stand,
    (Role.LEADING, Outlook.THEIRS): _step_down_and_follow,
    (Role.LEADING, Outlook.MINE): _stay,
}
