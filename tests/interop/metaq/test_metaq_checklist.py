"""Points of docs/metaq.md's checklist that need a kill or patience."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.drivers import METAQ, running_drivers
from imago_testing.interop.metaq import MetaqClient, Put
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.interop.metaq import Got

pytestmark = [pytest.mark.interop, pytest.mark.shows("group")]
BEATS_AFTER_SECONDS = 10


def puts(first: int, last: int) -> list[Put]:
    return [Put(f"{index}".encode()) for index in range(first, last)]


def numbers(messages: list[Got]) -> set[int]:
    return {int(each.body) for each in messages}


def test_point_3_a_consumer_that_is_killed_leaves_its_partitions_to_the_other(
    metaq: MetaqClient,
    metaq_topic: str,
    unique: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    group = unique("g")
    with (
        metaq.factory() as factory,
        factory.producer([metaq_topic]) as producer,
        factory.consumer([metaq_topic], group) as stays,
        running_drivers([METAQ], tmp_path_factory.mktemp) as started,
    ):
        driver = started[METAQ]
        driver.wait_ready()
        other = MetaqClient(driver, metaq.zookeeper, metaq.urls)
        where = {"kind": "simple", "zookeeper": metaq.zookeeper}
        driver.call("factory.start", name="killed", **where)
        driver.call("consumer.start", name="c", factory="killed", topics=[metaq_topic], group=group)
        sent, found = 0, set[int]()

        def both_get_some() -> bool:
            nonlocal sent
            producer.send(metaq_topic, puts(sent, sent + 16))
            sent += 16
            mine = stays.take(0)
            theirs = other.driver.call("consumer.take", name="c", count=1, timeout_ms=500)
            found.update(numbers(mine))
            return bool(mine) and bool(theirs)

        wait_until(both_get_some, seconds_max=60, what="both consumers get messages", poll=0.3)
        driver.kill()

        def all_of_a_round_is_mine() -> bool:
            nonlocal sent
            first, sent = sent, sent + 16
            producer.send(metaq_topic, puts(first, sent))
            found.update(numbers(stays.take(16, seconds_max=1)))
            return set(range(first, sent)) <= found

        wait_until(
            all_of_a_round_is_mine, seconds_max=90, what="the other consumer has all partitions"
        )
        # What the killed one had not committed comes again; what it had is its own.
        wait_until(
            lambda: set(range(sent - 16, sent)) <= found, seconds_max=60, what="nothing is missing"
        )


def test_point_4_a_client_that_idles_keeps_its_connection(
    metaq: MetaqClient, metaq_topic: str
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        [before] = producer.send(metaq_topic, puts(0, 1))
        time.sleep(BEATS_AFTER_SECONDS + 5)  # one heartbeat: what the client does, not what we time
        [after] = producer.send(metaq_topic, puts(1, 2))
    assert before.success
    assert after.success
