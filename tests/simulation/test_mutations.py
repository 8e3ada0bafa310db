"""The checker finds every planted bug, names the seed and tells what happened."""

from __future__ import annotations

import pytest

from imago_broker.core.shard.effects import HoldPuts
from imago_broker.core.shard.state import RULES
from imago_testing.simulation import member
from imago_testing.simulation.mutations import MUTATIONS, Mutation
from imago_testing.simulation.run import simulate
from imago_testing.simulation.world import Setup

pytestmark = pytest.mark.simulation


def first_failure(mutation: Mutation, *, stores: bool = False) -> AssertionError | None:
    for seed in range(mutation.seeds_max):
        try:
            setup = Setup(seed=seed, rules=mutation.rules, stores=stores)
            simulate(setup, weights=mutation.weights)
        except AssertionError as error:
            return error
    return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_planted_bug_is_found(mutation: Mutation) -> None:
    error = first_failure(mutation)
    assert error is not None, f"{mutation.what}: not found in {mutation.seeds_max} seeds"
    assert error.__notes__[0].startswith("seed ")
    told = error.__notes__[1].splitlines()
    assert len(told) > 20
    assert str(error) in told[-1]


@pytest.mark.timeout(300)
def test_planted_bug_is_found_with_real_stores() -> None:
    mutation = next(m for m in MUTATIONS if m.name == "truncate-by-high-watermark")
    assert first_failure(mutation, stores=True) is not None


@pytest.mark.timeout(300)
def test_held_puts_that_a_smaller_set_confirms_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that does not hear that the set has shrunk while puts are held."""

    def hold(process: member.Process, _: HoldPuts) -> None:
        process.accepting = ""

    monkeypatch.setitem(member._EFFECTS, HoldPuts, hold)
    found = first_failure(Mutation(name="held-puts", what="held puts are confirmed", rules=RULES))
    assert str(found).startswith("I13: acknowledged with 1 copies")
