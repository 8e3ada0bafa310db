"""Standing for election while there is no live leader."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.core.shard.effects import Answer, Describe, Leave, Note
from imago_broker.core.shard.election import ElectionOutcome, elected, highest_live
from imago_broker.core.shard.reconcile import last_epoch
from imago_broker.core.shard.state import Forced, Vacancy, confirmed_epoch, registered_epoch
from imago_broker.core.shard.values import MachineRole
from imago_broker.model.registry.shard import NOT_CREATED

if TYPE_CHECKING:
    from imago_broker.core.shard.events import ElectAsked
    from imago_broker.core.shard.state import Transition
    from imago_broker.core.shard.values import Live


def stand(transition: Transition) -> None:
    """Find out whether we may lead, and propose ourselves when it is our turn."""
    state = transition.state
    if state.stopping_ms is not None:
        transition.set(stopped=True)
        transition.do(Leave())
        return
    if state.vacancy is None:
        vacancy = Vacancy(transition.now_ms)
        transition.set(role=MachineRole.ELECTING, vacancy=vacancy, fresh_version=None)
    if transition.state.fresh_version != state.shard.version:
        # Elections are decided on what the coordinator itself has just said: a snapshot that
        # lacks the leader's registration may be older than that registration.
        transition.ask()
    elif transition.now_ms < state.yields_ms and state.forced is None:
        _note(transition, "others come first: our disk has no room to note an epoch")
    elif transition.may_propose():
        _stand(transition)


def _stand(transition: Transition) -> None:
    state = transition.state
    live = _live_with_own_log(transition)
    outcome = _forced(transition) or _chosen(transition, live)
    if outcome is None or state.member is None:
        return
    transition.propose(
        elected(
            state.shard,
            state.member,
            live,
            outcome,
            min_in_sync=transition.limits.min_in_sync,
            may_lead=transition.rules.electable,
        )
    )


def _chosen(transition: Transition, live: Live) -> ElectionOutcome | None:
    state = transition.state
    choice = transition.rules.choose(state.shard, live, state.known, transition.rules.electable)
    if state.uuid not in choice.candidates:
        _note(transition, choice.cause)
        return None
    vacancy = state.vacancy
    assert vacancy is not None, "stand() has set it"
    due_ms = vacancy.since_ms
    if patience := choice.patient.get(state.uuid):
        if patience != vacancy.patience:
            vacancy = replace(vacancy, patience=patience, patience_ms=transition.now_ms)
            transition.set(vacancy=vacancy)
        due_ms = patience.due_ms(
            vacancy.patience_ms, vacancy.since_ms, transition.limits.compare_ms_max
        )
        awaited = ", ".join((*patience.better, *patience.absent))
        _note(transition, f"logs are compared first, with {awaited}")
    if (
        transition.now_ms
        < due_ms + choice.candidates.index(state.uuid) * transition.limits.stagger_ms
    ):
        return None
    return ElectionOutcome(epoch=next_epoch(transition), cause=choice.cause)


def _note(transition: Transition, why: str) -> None:
    """Say why nobody is elected now, once."""
    vacancy = transition.state.vacancy
    assert vacancy is not None, "stand() has set it"
    if why != vacancy.waits_for:
        transition.set(vacancy=replace(vacancy, waits_for=why))
        transition.do(Note(f"no leader: {why}"))


def _forced(transition: Transition) -> ElectionOutcome | None:
    state, vacancy = transition.state, transition.state.vacancy
    assert vacancy is not None, "stand() has set it"
    if state.forced is None:
        return None
    gone = state.shard.version == NOT_CREATED
    if gone and any(info.leads for uuid, info in state.live.items() if uuid != state.uuid):
        # Who leads is given the time to write the state again; who hangs is not waited for longer.
        due_ms = vacancy.since_ms + transition.limits.compare_ms_max
        if transition.now_ms < due_ms:
            return None
    return ElectionOutcome(epoch=next_epoch(transition), cause="forced, loss allowed", unclean=True)


def next_epoch(transition: Transition) -> int:
    """An epoch that nobody can have promised itself to.

    Without the state all members are there and say what they have promised.
    """
    state = transition.state
    promised = max(state.epoch_seen, confirmed_epoch(state), registered_epoch(state))
    return 1 + max(state.shard.epoch, promised)


def _live_with_own_log(transition: Transition) -> Live:
    """Who is live, with our own log as it is and not as it was when we registered."""
    state = transition.state
    ours = state.live.get(state.uuid)
    if ours is None:
        return state.live
    true = ours._replace(
        unclean=state.unclean,
        log_epoch=last_epoch(state.log),
        log_end=state.log.end,
        damaged=state.log.damaged,
        epoch_seen=state.epoch_seen,
        standing=True,
        leads=False,
    )
    if true == ours:
        return state.live
    # The others compare logs by what registrations say.
    transition.do(Describe(true.unclean, true.log_epoch, true.log_end))
    return {**state.live, state.uuid: true}


def elect_asked(transition: Transition, event: ElectAsked, *, vacant: bool) -> None:
    """A person asks for an election, and perhaps allows the loss of records."""
    refusal = _refusal(transition, event) if vacant else "the shard has a leader"
    if refusal is None:
        transition.set(forced=Forced(event.request))
    else:
        transition.do(Answer(event.request, done=False, text=refusal))


def _refusal(transition: Transition, event: ElectAsked) -> str | None:
    """Return why the shard needs no forced election, or not of this member; or None."""
    state = transition.state
    live = _live_with_own_log(transition)
    choice = transition.rules.choose(state.shard, live, state.known, transition.rules.electable)
    best = highest_live(live)
    if choice.candidates:
        return f"{choice.candidates[0]} can be elected without loss"
    if not event.allow_data_loss:
        return f"nobody can be elected without loss: {choice.cause}"
    if best != state.uuid:
        return f"member {best} holds more: ask it"
    return None
