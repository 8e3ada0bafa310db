"""The checker finds every planted bug, names the seed and tells what happened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imago_broker.core.shard.effects import HoldPuts
from imago_broker.core.shard.state import RULES
from imago_broker.core.shard.steps import handing_over
from imago_log.replica.log_bytes import LogByteReader
from imago_testing.searching import seldom
from imago_testing.simulation import member
from imago_testing.simulation.mutations import MUTATIONS, Mutation
from imago_testing.simulation.run import simulate
from imago_testing.simulation.winners import InvariantBrokenError
from imago_testing.simulation.world import Setup
from imago_wire.hot import scan_records
from imago_wire.records.record import ScanStop

pytestmark = pytest.mark.simulation

GIVEN_UP = 3786
"""A seed with these faults: a leader that stops never hears what became of its last proposal."""
GIVING_UP = {"forget": 3, "handover": 2}
GIVING_UP |= dict.fromkeys(
    ("kill", "pause", "expire", "no_coordinator", "drop", "stop", "partition"), 1
)


def first_failure(mutation: Mutation, *, stores: bool = False) -> Exception | None:
    for seed in range(mutation.seeds_max):
        try:
            setup = Setup(seed=seed, rules=mutation.rules, stores=stores)
            simulate(setup, weights=mutation.weights)
        except (AssertionError, ValueError) as error:
            return error
    return None


@pytest.mark.parametrize("mutation", seldom(MUTATIONS, often=4), ids=lambda mutation: mutation.name)
def test_planted_bug_is_found(mutation: Mutation) -> None:
    error = first_failure(mutation)
    assert error is not None, f"{mutation.what}: not found in {mutation.seeds_max} seeds"
    assert error.__notes__[0].startswith("seed ")
    told = error.__notes__[1].splitlines()
    assert len(told) > 20
    assert str(error) in told[-1]


def test_planted_bug_is_found_with_real_stores() -> None:
    mutation = next(m for m in MUTATIONS if m.name == "truncate-by-high-watermark")
    assert first_failure(mutation, stores=True) is not None


def walks_one_chunk(own: LogByteReader, offset: int) -> bool:
    """Whether records lead to a place, as long as the last one begins in the first chunk."""
    at = own._known_border(offset)
    while at < offset:
        data = own._log.read(at, min(offset - at, 300))
        scan = scan_records(data, at, verify=False)
        at += scan.end
        if scan.stop is not ScanStop.END and not (scan.end and len(data) < offset - at):
            break
    return at == offset


def test_a_border_beyond_a_chunk_that_a_member_takes_for_none_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With real stores, and so little of their logs in memory that borders are walked to."""
    monkeypatch.setattr("imago_log.state.RECENT_BYTES_MAX", 700)
    monkeypatch.setattr(LogByteReader, "is_border", walks_one_chunk)
    mutation = Mutation(name="short-walk", what="a walk ends with its chunk", rules=RULES)
    assert "is no record border" in str(first_failure(mutation, stores=True))


def test_held_puts_that_a_smaller_set_confirms_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that does not hear that the set has shrunk while puts are held."""

    def hold(process: member.Process, _: HoldPuts) -> None:
        process.accepting = ""

    monkeypatch.setitem(member._EFFECTS, HoldPuts, hold)
    weights = {"handover": 4, "stop": 3, "pause": 3, "isolate": 3, "partition": 2}
    found = first_failure(
        Mutation(name="held", what="held puts are confirmed", rules=RULES, weights=weights)
    )
    assert str(found).startswith("I13: acknowledged with 1 copies")


def test_what_a_leader_confirms_alone_though_it_has_given_leadership_up_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shell that does not hear that whoever is elected now may lack what it alone has."""

    def hold(process: member.Process, effect: HoldPuts) -> None:
        process.hold_puts(replace(effect, alone=True))

    simulate(Setup(seed=GIVEN_UP), weights=GIVING_UP)
    monkeypatch.setitem(member._EFFECTS, HoldPuts, hold)
    with pytest.raises(InvariantBrokenError, match="I1: m2 acknowledged 820"):
        simulate(Setup(seed=GIVEN_UP), weights=GIVING_UP)


def test_handover_to_damage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that hands over without a look at damage."""
    monkeypatch.setattr(handing_over, "_damaged", lambda *_: False)
    weights = {"damage": 3, "handover": 4, "stop": 2}
    found = first_failure(
        Mutation(name="handed", what="handed over to damage", rules=RULES, weights=weights)
    )
    assert str(found).startswith("I19: ")
