"""Every reachable state of the small model keeps the invariants; planted bugs break them."""

from __future__ import annotations

import random
import re

import pytest

from imago_testing.simulation.exhaustive import SMALL, BrokenStateError, explore, walk
from imago_testing.simulation.mutations import MUTATIONS, Mutation
from imago_testing.simulation.small import Bounds

TWO_WRITES = Bounds(writes=2, epochs=2, crashes=1, expiries=0)
"""Logs that are equally long and differ need two."""

pytestmark = pytest.mark.simulation

SHOWN = [
    mutation
    for mutation in MUTATIONS
    if mutation.name in {"kip-101", "kip-966", "shrink-before-stored", "join-behind"}
]


@pytest.mark.full
def test_no_reachable_state_breaks_an_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    found = explore(SMALL)
    assert found.whole
    assert found.states > 50_000
    with capsys.disabled():
        print(f"\nsmall model: {found.states} states, {found.depth} steps deep")


def test_a_search_that_a_limit_ends_goes_on_at_random_from_its_edge() -> None:
    found = explore(TWO_WRITES, states_max=3000)
    assert not found.whole
    assert found.states > len(found.edge) > 0
    asked = iter(range(20))
    walks, states = walk(
        TWO_WRITES, found.edge, random.Random(1), lambda: next(asked, None) is None
    )
    assert walks == 20
    assert states > walks


@pytest.mark.parametrize("mutation", SHOWN, ids=lambda mutation: mutation.name)
def test_planted_bug_breaks_a_reachable_state(mutation: Mutation) -> None:
    with pytest.raises(BrokenStateError) as caught:
        explore(TWO_WRITES, mutation.rules)
    way = str(caught.value).splitlines()
    assert re.match(r"I\d+: |\d fetches", way[0])
    assert len(way) > 3, "the way to the state is told"
