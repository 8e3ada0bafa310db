"""Messages that wait for what is gone when they are due: a group's topic, their level."""

from __future__ import annotations

import pytest
from tests.broker.service.delays.test_delay import LEVELS, DelayWorld


@pytest.fixture
def world() -> DelayWorld:
    return DelayWorld()


def test_a_groups_topic_is_made_again_for_what_was_given_back(world: DelayWorld) -> None:
    topics = world.broker.topics
    for topic in ("%RETRY%g", "%DLQ%g"):
        topics.auto_create(topic, default_topic="", default_queues=1, for_retry=True)
        world.broker.park(1, "given back", topic)
        topics.delete(topic)
    world.run(3000)
    assert [world.broker.bodies(topic) for topic in ("%RETRY%g", "%DLQ%g")] == [["given back"]] * 2
    assert world.broker.delay.dropped == 0


def test_what_waits_at_a_level_that_there_is_no_more_waits_as_at_the_last(
    world: DelayWorld,
) -> None:
    world.park(1, 4, 6)
    world.run(1500)
    world.levels = "1s 10s"
    world.restart()
    assert world.broker.delay.needed_from() < world.broker.store.log_end
    world.run(11_000)
    assert sorted(world.seen) == ["m0-level1", "m1-level4", "m2-level6"]
    world.levels = LEVELS
    world.restart()
    world.run(3000)
    assert len(world.broker.bodies("T")) == 3
