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
from imago_broker.core.shard.values import Role

if TYPE_CHECKING:
    from imago_broker.core.shard.events import Welcomed
    from imago_broker.core.shard.state import Turn


def follow(turn: Turn) -> None:
    """Follow the live leader that the shard's state names."""
    state = turn.state
    shard, leader = state.shard, state.shard.leader
    assert leader is not None, "the outlook has seen a leader"
    turn.set(role=Role.FOLLOWING, vacant_ms=None, waiting="")
    if state.forced is not None:
        turn.set(forced=None)
        turn.do(Answer(state.forced.request, done=False, text=f"{leader.uuid} leads"))
    if state.following == leader and state.epoch >= shard.epoch:
        return leave_set(turn)
    promise(turn, shard.epoch)
    turn.set(following=leader, epoch=shard.epoch, reconciled=False)
    turn.do(Follow(leader, shard.epoch))
    return leave_set(turn)


def promise(turn: Turn, epoch: int) -> None:
    """Take nothing of a lower epoch from now on."""
    if epoch > turn.state.epoch_seen:
        turn.set(epoch_seen=epoch)
        turn.do(Promise(epoch))


def unfollow(turn: Turn) -> None:
    """Stop following; what the former leader still sends is not taken."""
    turn.set(role=Role.ELECTING, following=None, reconciled=False)
    turn.do(Unfollow())


def welcomed(turn: Turn, event: Welcomed) -> None:
    """Make our log a prefix of the leader's, then fetch from its end."""
    state = turn.state
    if state.role is not Role.FOLLOWING:
        return
    if event.epoch < state.epoch_seen:
        turn.do(Hangup(f"its epoch is {event.epoch}, ours {state.epoch_seen}"))
        turn.ask()
        return
    promise(turn, event.epoch)
    cut = turn.rules.reconcile(event.own, event.log)
    if cut.reset:
        # Once begun, our log says nothing until it has caught up.
        turn.set(unclean=True)
        turn.do(Mark(unclean=True), Reset(cut.end))
    elif cut.end < event.own.end:
        turn.do(Truncate(cut.end))
    if cut.end < event.own.high_watermark:
        # Right only after a forced election, or when all of the set lost power.
        turn.do(Note(f"cut to {cut.end}, below the high watermark {event.own.high_watermark}"))
    turn.set(epoch=event.epoch, reconciled=True)
    turn.do(FetchFrom(cut.end, cut.epoch))


def leave_set(turn: Turn) -> None:
    """On an orderly stop: leave the in-sync set, so that the leader does not wait for us."""
    state = turn.state
    if state.stopping_ms is None:
        return
    rest = tuple(member for member in state.shard.in_sync if member.uuid != state.uuid)
    late = turn.now_ms - state.stopping_ms >= turn.limits.stop_ms_max
    if len(rest) == len(state.shard.in_sync) or late:
        turn.set(stopped=True)
        turn.do(Leave())
    elif turn.may_propose():
        cause = f"{state.uuid} stops"
        turn.propose(resized(state.shard, rest, cause, min_in_sync=turn.limits.min_in_sync))
