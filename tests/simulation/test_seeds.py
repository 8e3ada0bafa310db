"""The leadership core in a seeded world keeps every invariant, whatever happens to it."""

from __future__ import annotations

import pytest

from imago_testing.searching import examples
from imago_testing.simulation.run import simulate, story
from imago_testing.simulation.world import Setup

pytestmark = pytest.mark.simulation

SEEDS = examples(2000)
BLOCK = 200
STORE_SEEDS = examples(60)


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    results = [simulate(Setup(seed=seed)) for seed in range(first, first + BLOCK)]
    assert min(result.events for result in results) >= 200
    # A world in which nothing happens proves nothing.
    assert sum(result.faults for result in results) > 5 * BLOCK
    assert sum(result.elections for result in results) > BLOCK
    assert sum(result.acks for result in results) > 10 * BLOCK


@pytest.mark.parametrize("first", range(0, STORE_SEEDS, 20))
def test_no_seed_breaks_an_invariant_with_real_stores(first: int) -> None:
    """The same worlds, in which every member's log is a store on a file system in memory."""
    results = [simulate(Setup(seed=seed, stores=True)) for seed in range(first, first + 20)]
    assert sum(result.elections for result in results) > 20
    assert sum(result.acks for result in results) > 200


@pytest.mark.parametrize("seed", [3, 11, 40])
def test_a_seed_tells_the_same_story_twice(seed: int) -> None:
    assert story(Setup(seed=seed)) == story(Setup(seed=seed))
    assert simulate(Setup(seed=seed)) == simulate(Setup(seed=seed, story=True))
