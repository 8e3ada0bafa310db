"""Original RocketMQ consumers that fail: retries, dead letters; and delayed delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.rocketmq import Admin, Outgoing, Received, RocketmqClient
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.interop, pytest.mark.shows("retry")]
DELAY_SECONDS = {1: 1, 2: 5}
"""Level to seconds: the first two of 1s 5s 10s 30s 1m …"""
CHECK_INTERVAL_MS = 1000
"""A delayed message may come early by as much as the broker's own check interval."""


@pytest.mark.both_clients
def test_failed_message_comes_again_with_its_count(
    rocketmq: RocketmqClient, admin: Admin, topic: str, unique: Callable[[str], str]
) -> None:
    group = warm_group(rocketmq, admin, topic, unique("g"))
    with rocketmq.producer() as producer:
        [sent] = producer.send(topic, [Outgoing(body=b"stubborn", tags="T", keys="K")])
        with rocketmq.push(topic, group, failures=2) as consumer:
            deliveries = consumer.take(3, seconds_max=60)
    assert [each.reconsumed for each in deliveries] == [0, 1, 2]
    assert [each.succeeds for each in deliveries] == [False, False, True]
    # The client shows the topic it came from, not the retry topic it was kept in.
    assert {each.queue.topic for each in deliveries} == {topic}
    assert {(each.body, each.tags, each.keys) for each in deliveries} == {(b"stubborn", "T", "K")}
    last = deliveries[-1]
    assert last.properties["RETRY_TOPIC"] == topic
    assert last.properties["ORIGIN_MESSAGE_ID"] == sent.offset_id
    assert last.properties["UNIQ_KEY"] == sent.id


@pytest.mark.shows("retry", "dead")
def test_message_that_never_succeeds_becomes_a_dead_letter(
    rocketmq: RocketmqClient, admin: Admin, topic: str, unique: Callable[[str], str]
) -> None:
    group = warm_group(rocketmq, admin, topic, unique("g"))
    with rocketmq.producer() as producer:
        [sent] = producer.send(topic, [Outgoing(body=b"hopeless", tags="T", keys="K")])
        with rocketmq.push(topic, group, failures=99, reconsume_max=1) as consumer:
            tried = consumer.take(2, seconds_max=60)
            letter = dead_letter(rocketmq, group)
    assert [each.reconsumed for each in tried] == [0, 1]
    assert (letter.body, letter.tags, letter.keys) == (b"hopeless", "T", "K")
    assert letter.queue.topic == f"%DLQ%{group}"
    assert letter.properties["ORIGIN_MESSAGE_ID"] == sent.offset_id
    assert letter.properties["RETRY_TOPIC"] == topic


@pytest.mark.shows("retry", "dead")
def test_orderly_message_over_its_limit_becomes_a_dead_letter(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("g")
    options = {"orderly": True, "failures": 99, "reconsume_max": 1}
    with rocketmq.producer() as producer:
        [sent] = producer.send(topic, [Outgoing(body=b"hopeless")])
        with rocketmq.push(topic, group, **options) as consumer:
            consumer.take(2)
            letter = dead_letter(rocketmq, group)
    assert letter.body == b"hopeless"
    assert letter.properties["ORIGIN_MESSAGE_ID"] == sent.id


@pytest.mark.shows("delay")
def test_delayed_messages_come_in_the_order_of_their_times_and_not_early(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with rocketmq.producer() as producer, rocketmq.push(topic, unique("g")) as consumer:
        wait_until(
            lambda: set(producer.queues(topic)) == consumer.assigned(),
            seconds_max=60,
            what="the consumer owns all queues",
        )
        for level in (2, 1):
            producer.send(topic, [Outgoing(body=f"{level}".encode(), delay_level=level, tags="T")])
        producer.send(topic, [Outgoing(body=b"0")])
        found = consumer.take(3, seconds_max=60)
    # Sending the one without a delay may itself take a second.
    delayed = [each for each in found if each.body != b"0"]
    assert sorted(each.body for each in found) == [b"0", b"1", b"2"]
    # By their own times: between two sends, and between two deliveries, clients may pause.
    assert sorted(delayed, key=lambda each: each.stored_ms) == sorted(delayed, key=due_ms)
    for each in delayed:
        assert each.stored_ms >= due_ms(each) - CHECK_INTERVAL_MS
        assert (each.queue.topic, each.tags) == (topic, "T")


def due_ms(message: Received) -> int:
    return message.born_ms + DELAY_SECONDS[int(message.body)] * 1000


def warm_group(rocketmq: RocketmqClient, admin: Admin, topic: str, group: str) -> str:
    """Let the group have its retry topic: a consumer sees a new one only after up to 20 s."""
    with rocketmq.push(topic, group):
        wait_until(
            lambda: f"%RETRY%{group}" in admin.call("topics"),
            seconds_max=60,
            what=f"the retry topic of {group}",
        )
    rocketmq.settle()
    return group


def dead_letter(rocketmq: RocketmqClient, group: str) -> Received:
    """The only message of the group's dead letter topic, once it is there.

    That takes the original 4.9 broker half a minute for a message of an orderly consumer.
    """
    topic = f"%DLQ%{group}"
    found: list[Received] = []
    with rocketmq.pull() as puller:

        def arrived() -> bool:
            try:
                found[:] = puller.stored(topic)
            except DriverError:
                return False  # the topic has no route yet
            return bool(found)

        wait_until(arrived, seconds_max=60, what=f"a message in {topic}")
    [letter] = found
    return letter
