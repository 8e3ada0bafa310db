"""No two runs may ever write, whenever the operator dies and whatever it saw."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from imago_operator.pipelines.state import RunStage
from imago_testing.operated.pipelines import PipelineWorld, desired
from imago_testing.searching import examples


def assert_one_writer(world: PipelineWorld) -> None:
    """Brokers refuse all epochs but one, and of each epoch there is one driver at most."""
    epochs = [driver.epoch for driver in world.drivers]
    assert len(epochs) == len(set(epochs))
    assert all(epoch <= world.epoch for epoch in epochs), "none runs that was not allowed"


@pytest.mark.parametrize("seed", range(examples(100)))
def test_at_most_one_driver_may_write_and_in_the_end_one_does(seed: int) -> None:
    world = PipelineWorld(random.Random(seed))
    old = world.look()
    for _ in range(60):
        seen = world.look()
        if world.random.random() < 0.2:
            old = seen
        # Sometimes one that was away acts on what it saw long ago, or dies in between.
        stale = world.random.random() < 0.1
        world.operate(old if stale else seen, world.random.choice([0, 1, 2, 3, 4, 9, 9, 9]))
        world.kubelet()
        assert_one_writer(world)
        if world.random.random() < 0.3:
            world.disturb()
    world.brokers, world.changes["spec.paused"] = True, False
    for _ in range(80):
        world.operate(world.look(), 9)
        world.kubelet()
        world.now += timedelta(seconds=100)
        assert_one_writer(world)
    assert [(run.stage, run.epoch) for run in world.runs] == [(RunStage.RUNNING, world.epoch)]
    assert world.runs[0].hash == desired(world.changes).hash
