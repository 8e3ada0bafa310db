"""Following a leader: promise first, then reconcile, then fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard.effects import (
    Answer,
    FetchFrom,
    Follow,
    Hangup,
    Leave,
    Mark,
    Note,
    Promise,
    Reset,
    Truncate,
    Unfollow,
)
from imago_broker.core.shard.in_sync import resized
from imago_broker.core.shard.values import MachineRole

if TYPE_CHECKING:
    from imago_broker.core.shard.events import Welcomed
    from imago_broker.core.shard.state import Transition


def follow(transition: Transition) -> None:
    """Follow the live leader that the shard's state names."""
    state = transition.state
    shard, leader = state.shard, state.shard.leader
    assert leader is not None, "the outlook has seen a leader"
    transition.set(role=MachineRole.FOLLOWING, vacancy=None)
    if state.forced is not None:
        transition.set(forced=None)
        transition.do(Answer(state.forced.request, done=False, text=f"{leader.uuid} leads"))
    if state.following == leader and state.epoch >= shard.epoch:
        return leave_set(transition)
    promise(transition, shard.epoch)
    transition.set(following=leader, epoch=shard.epoch, reconciled=False)
    transition.do(Follow(leader, shard.epoch))
    return leave_set(transition)


def promise(transition: Transition, epoch: int) -> None:
    """Take nothing of a lower epoch from now on."""
    if epoch > transition.state.epoch_seen:
        transition.set(epoch_seen=epoch)
        transition.do(Promise(epoch))


def unfollow(transition: Transition) -> None:
    """Stop following; what the former leader still sends is not taken."""
    transition.set(role=MachineRole.ELECTING, following=None, reconciled=False)
    transition.do(Unfollow())


def welcomed(transition: Transition, event: Welcomed) -> None:
    """Make our log a prefix of the leader's, then fetch from its end."""
    state = transition.state
    if state.role is not MachineRole.FOLLOWING:
        return
    if event.epoch < state.epoch_seen:
        transition.do(Hangup(f"its epoch is {event.epoch}, ours {state.epoch_seen}"))
        transition.ask()
        return
    promise(transition, event.epoch)
    cut = transition.rules.reconcile(event.own, event.log)
    if cut.reset:
        # Once begun, our log says nothing until it has caught up.
        transition.set(unclean=True)
        transition.do(Mark(unclean=True), Reset(cut.end))
    elif cut.end < event.own.end:
        transition.do(Truncate(cut.end))
    if cut.end < event.own.high_watermark:
        # Right only after a forced election, or when all of the set lost power.
        transition.do(
            Note(f"cut to {cut.end}, below the high watermark {event.own.high_watermark}")
        )
    transition.set(epoch=event.epoch, reconciled=True)
    transition.do(FetchFrom(cut.end, cut.epoch))


def leave_set(transition: Transition) -> None:
    """On an orderly stop: leave the in-sync set, so that the leader does not wait for us."""
    state = transition.state
    if state.stopping_ms is None:
        return
    rest = tuple(member for member in state.shard.in_sync if member.uuid != state.uuid)
    late = transition.now_ms - state.stopping_ms >= transition.limits.stop_ms_max
    if len(rest) == len(state.shard.in_sync) or late:
        transition.set(stopped=True)
        transition.do(Leave())
    elif transition.may_propose():
        cause = f"{state.uuid} stops"
        transition.propose(
            resized(state.shard, rest, cause, min_in_sync=transition.limits.min_in_sync)
        )
