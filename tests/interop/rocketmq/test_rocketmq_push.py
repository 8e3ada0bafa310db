"""Original RocketMQ push consumers: long polling, groups, rebalancing, order, broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.rocketmq import Outgoing, PushConsumer, Queue, Received, RocketmqClient
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.interop, pytest.mark.shows("group")]
LESS_THAN_A_LONG_POLL = 10.0
"""Seconds. The broker holds an empty pull for 15 s."""


def numbered(
    first: int, last: int, *, tag: str | None = None, key: str | None = None
) -> list[Outgoing]:
    return [Outgoing(body=f"{index}".encode(), tags=tag, keys=key) for index in range(first, last)]


def numbers(messages: list[Received]) -> list[int]:
    return sorted(int(each.body) for each in messages)


@pytest.mark.both_clients
def test_group_gets_every_message_once_and_resumes_where_it_stopped(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    with rocketmq.producer() as producer:
        producer.send(topic, numbered(0, 40))
        with rocketmq.push(topic, group) as consumer:
            first = consumer.take(40)
        rocketmq.settle()
        producer.send(topic, numbered(40, 50))
        with rocketmq.push(topic, group) as consumer:
            second = consumer.take(10)
    assert numbers(first) == list(range(40))
    assert numbers(second) == list(range(40, 50))


def test_waiting_consumer_is_woken_by_the_message(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with rocketmq.push(topic, unique("group")) as consumer, rocketmq.producer() as producer:
        wait_until(
            lambda: set(producer.queues(topic)) == consumer.assigned(),
            seconds_max=60,
            what="the consumer owns all queues",
        )
        producer.send(topic, numbered(0, 8))
        found = consumer.take(8, seconds_max=LESS_THAN_A_LONG_POLL)
    assert numbers(found) == list(range(8))


def test_new_group_from_the_last_offset_reads_a_young_topic_from_its_start(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with rocketmq.producer() as producer:
        producer.send(topic, numbered(0, 8))
        where = {"from": "CONSUME_FROM_LAST_OFFSET"}
        with rocketmq.push(topic, unique("group"), **where) as consumer:
            found = consumer.take(8)
    assert numbers(found) == list(range(8))


@pytest.mark.shows("filter")
def test_only_subscribed_tags_are_delivered(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with rocketmq.producer() as producer:
        for index in range(30):
            tag = ("A", "B", "C")[index % 3]
            producer.send(topic, numbered(index, index + 1, tag=tag))
        with rocketmq.push(topic, unique("group"), expression="A || C") as consumer:
            found = consumer.take(20)
    assert numbers(found) == [index for index in range(30) if index % 3 != 1]


@pytest.mark.shows("ordered")
def test_orderly_consumer_keeps_the_order_of_each_queue_through_failures(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with rocketmq.producer() as producer:
        for key in ("one", "two", "three"):
            producer.send_by_hash(topic, numbered(0, 10, key=key))
        options = {"orderly": True, "failures": 5}
        with rocketmq.push(topic, unique("group"), **options) as consumer:
            deliveries = consumer.take(35)
    assert len([each for each in deliveries if not each.succeeds]) == 5
    for key in ("one", "two", "three"):
        accepted = [each for each in deliveries if each.keys == key and each.succeeds]
        assert [int(each.body) for each in accepted] == list(range(10))
        # A failed message is tried again before its queue goes on.
        tried = [int(each.body) for each in deliveries if each.keys == key]
        assert tried == sorted(tried)


@pytest.mark.shows("ordered")
@pytest.mark.both_clients
def test_two_orderly_consumers_share_the_locked_queues(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    with (
        rocketmq.producer() as producer,
        rocketmq.push(topic, group, orderly=True) as one,
        rocketmq.push(topic, group, orderly=True) as two,
    ):
        queues = set(producer.queues(topic))
        share(queues, one, two)
        for queue in sorted(queues):
            producer.send_to_queue(queue, numbered(0, 5))
        found = take_from_both(one, two, 5 * len(queues))
    for queue in queues:
        readers = {reader for reader, each in found if each.queue == queue}
        assert [int(each.body) for _, each in found if each.queue == queue] == [0, 1, 2, 3, 4]
        assert len(readers) == 1


def test_two_consumers_rebalance_when_one_joins_and_when_it_leaves(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    with rocketmq.producer() as producer, rocketmq.push(topic, group) as stays:
        queues = set(producer.queues(topic))
        wait_until(
            lambda: stays.assigned() == queues, seconds_max=60, what="the first owns all queues"
        )
        with rocketmq.push(topic, group) as leaves:
            share(queues, stays, leaves)
            assert len(stays.assigned()) == len(leaves.assigned()) == len(queues) // 2
            producer.send(topic, numbered(0, 40))
            both = take_from_both(stays, leaves, 40)
        rocketmq.settle()
        wait_until(
            lambda: stays.assigned() == queues, seconds_max=60, what="the first owns all again"
        )
        producer.send(topic, numbered(40, 60))
        rest = stays.take(20)
    assert sorted(int(each.body) for _, each in both) == list(range(40))
    assert {reader for reader, _ in both} == {stays.name, leaves.name}
    assert numbers(rest) == list(range(40, 60))


@pytest.mark.shows("broadcast")
def test_broadcast_reaches_every_consumer(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    model = {"model": "BROADCASTING"}
    with (
        rocketmq.producer() as producer,
        rocketmq.push(topic, group, **model) as one,
        rocketmq.push(topic, group, **model) as two,
    ):
        queues = set(producer.queues(topic))
        wait_until(
            lambda: one.assigned() == two.assigned() == queues,
            seconds_max=60,
            what="both own all queues",
        )
        producer.send(topic, numbered(0, 12))
        assert numbers(one.take(12)) == numbers(two.take(12)) == list(range(12))


def share(queues: set[Queue], one: PushConsumer, two: PushConsumer) -> None:
    """Wait until the two own all queues between them, none in common."""

    def shared() -> bool:
        first, second = one.assigned(), two.assigned()
        return bool(first and second) and first | second == queues and not first & second

    wait_until(shared, what="two consumers share the queues")


def take_from_both(one: PushConsumer, two: PushConsumer, count: int) -> list[tuple[str, Received]]:
    """All of `count` messages, with the name of the consumer that got each, in its order."""
    found: list[tuple[str, Received]] = []

    def all_here() -> bool:
        for consumer in (one, two):
            found.extend((consumer.name, each) for each in consumer.take(0, seconds_max=0))
        return len(found) >= count

    wait_until(all_here, seconds_max=60, what=f"{count} messages reach two consumers")
    return found
