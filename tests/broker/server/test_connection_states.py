"""The table of connection states: what it does not name raises, and every phase can end."""

from __future__ import annotations

import itertools

import pytest

from imago_broker.server.connection_states import (
    RELAYED,
    TRANSITIONS,
    ConnectionEvent,
    ConnectionPhase,
    ConnectionState,
    WaitReason,
    WrongEventError,
)

EVERY = list(itertools.product(ConnectionPhase, ConnectionEvent))


def state_in(phase: ConnectionPhase) -> ConnectionState:
    """Return a state that came to this phase by events alone."""
    ways: dict[ConnectionPhase, list[ConnectionEvent]] = {ConnectionPhase.SERVING: []}
    while phase not in ways:
        for at, way in list(ways.items()):
            for event, following in TRANSITIONS[at].items():
                ways.setdefault(following, [*way, event])
    state = ConnectionState()
    for event in ways[phase]:
        state.happened(event)
    assert state.phase is phase
    return state


@pytest.mark.parametrize(("phase", "event"), EVERY)
def test_an_event_happens_as_the_table_says_or_raises(
    phase: ConnectionPhase, event: ConnectionEvent
) -> None:
    state = state_in(phase)
    following = TRANSITIONS[phase].get(event)
    assert state.may(event) == (following is not None)
    if following is None:
        with pytest.raises(WrongEventError, match=f"{event.name} while {phase.name}"):
            state.happened(event)
        assert state.phase is phase
    else:
        assert state.happened(event) is following is state.phase


def test_a_relay_gets_and_returns_connections_in_its_phases_alone() -> None:
    for phase, event in EVERY:
        following = TRANSITIONS[phase].get(event, phase)
        if event is ConnectionEvent.TAKE_BACK:
            assert (phase in RELAYED) == (event in TRANSITIONS[phase])
        elif following in RELAYED and phase not in RELAYED:
            assert event is ConnectionEvent.LEAVE


def test_every_phase_ends_and_is_closed() -> None:
    for phase in ConnectionPhase:
        assert TRANSITIONS[phase][ConnectionEvent.CLOSE] is ConnectionPhase.CLOSED
        ended = TRANSITIONS[phase][ConnectionEvent.END]
        back = TRANSITIONS[ended].get(ConnectionEvent.TAKE_BACK, ended)
        assert back in (ConnectionPhase.ENDING, ConnectionPhase.CLOSED)


@pytest.mark.parametrize("phase", ConnectionPhase)
def test_nothing_is_served_while_one_reason_to_wait_is_left(phase: ConnectionPhase) -> None:
    state = state_in(phase)
    reads, serves = state.reads, state.serves
    assert reads == (phase is ConnectionPhase.SERVING)
    assert serves == (phase in (ConnectionPhase.SERVING, ConnectionPhase.ENDING))
    for reason in WaitReason:
        state.wait(reason)
    for reason in WaitReason:
        assert (state.reads, state.serves) == (False, False)
        state.wait_no_more(reason)
    assert (state.reads, state.serves) == (reads, serves)
