"""Standing for election while there is no live leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard.effects import Answer, Describe, Leave, Note
from imago_broker.core.shard.election import Outcome, elected, highest_live
from imago_broker.core.shard.reconcile import last_epoch
from imago_broker.core.shard.state import Forced, confirmed_epoch
from imago_broker.core.shard.values import Role

if TYPE_CHECKING:
    from imago_broker.core.shard.events import ElectAsked
    from imago_broker.core.shard.state import Turn
    from imago_broker.core.shard.values import Live


def stand(turn: Turn) -> None:
    """Find out whether we may lead, and propose ourselves when it is our turn."""
    state = turn.state
    if state.stopping_ms is not None:
        turn.set(stopped=True)
        turn.do(Leave())
        return
    if state.vacant_ms is None:
        turn.set(role=Role.ELECTING, vacant_ms=turn.now_ms, fresh_version=None, patience=None)
    if turn.state.fresh_version != state.shard.version:
        # Elections are decided on what the coordinator itself has just said: a snapshot that
        # lacks the leader's registration may be older than that registration.
        turn.ask()
    elif turn.may_propose():
        _stand(turn)


def _stand(turn: Turn) -> None:
    state = turn.state
    live = _live_with_own_log(turn)
    outcome = _forced(turn) or _chosen(turn, live)
    if outcome is None or state.member is None:
        return
    turn.propose(
        elected(
            state.shard,
            state.member,
            live,
            outcome,
            min_in_sync=turn.limits.min_in_sync,
            may_lead=turn.rules.electable,
        )
    )


def _chosen(turn: Turn, live: Live) -> Outcome | None:
    state = turn.state
    choice = turn.rules.choose(state.shard, live, state.known, turn.rules.electable)
    if state.uuid not in choice.candidates:
        _note(turn, choice.cause)
        return None
    assert state.vacant_ms is not None, "stand() has set it"
    due_ms = state.vacant_ms
    if patience := choice.patient.get(state.uuid):
        if patience != state.patience:
            turn.set(patience=patience, patience_ms=turn.now_ms)
        since_ms = turn.state.patience_ms
        due_ms = patience.due_ms(since_ms, state.vacant_ms, turn.limits.compare_ms_max)
        awaited = ", ".join((*patience.better, *patience.absent))
        _note(turn, f"logs are compared first, with {awaited}")
    if turn.now_ms < due_ms + choice.candidates.index(state.uuid) * turn.limits.stagger_ms:
        return None
    return Outcome(epoch=next_epoch(turn), cause=choice.cause)


def _note(turn: Turn, why: str) -> None:
    """Say why nobody is elected now, once."""
    if why != turn.state.waiting:
        turn.set(waiting=why)
        turn.do(Note(f"no leader: {why}"))


def _forced(turn: Turn) -> Outcome | None:
    if turn.state.forced is None:
        return None
    return Outcome(epoch=next_epoch(turn), cause="forced, loss allowed", unclean=True)


def next_epoch(turn: Turn) -> int:
    """An epoch that nobody can have promised itself to."""
    state = turn.state
    return 1 + max(state.shard.epoch, state.epoch_seen, confirmed_epoch(state))


def _live_with_own_log(turn: Turn) -> Live:
    """Who is live, with our own log as it is and not as it was when we registered."""
    state = turn.state
    ours = state.live.get(state.uuid)
    if ours is None:
        return state.live
    true = ours._replace(
        unclean=state.unclean,
        log_epoch=last_epoch(state.log),
        log_end=state.log.end,
        damaged=state.log.damaged,
    )
    if true == ours:
        return state.live
    # The others compare logs by what registrations say.
    turn.do(Describe(true.unclean, true.log_epoch, true.log_end))
    return {**state.live, state.uuid: true}


def elect_asked(turn: Turn, event: ElectAsked, *, vacant: bool) -> None:
    """A person asks for an election, and perhaps allows the loss of records."""
    refusal = _refusal(turn, event) if vacant else "the shard has a leader"
    if refusal is None:
        turn.set(forced=Forced(event.request))
    else:
        turn.do(Answer(event.request, done=False, text=refusal))


def _refusal(turn: Turn, event: ElectAsked) -> str | None:
    """Return why the shard needs no forced election, or not of this member; or None."""
    state = turn.state
    live = _live_with_own_log(turn)
    choice = turn.rules.choose(state.shard, live, state.known, turn.rules.electable)
    best = highest_live(live)
    if choice.candidates:
        return f"{choice.candidates[0]} can be elected without loss"
    if not event.allow_data_loss:
        return f"nobody can be elected without loss: {choice.cause}"
    if best != state.uuid:
        return f"member {best} holds more: ask it"
    return None
