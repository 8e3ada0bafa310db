"""Original MetaQ consumers: balanced through ZooKeeper, one-shot, browsing, broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.metaq import Got, MetaqClient, MetaqFactory, Put
from imago_testing.interop.sharing import (
    Numbered,
    committed,
    numbers,
    puts,
    wait_for_owners,
    zookeeper,
)
from imago_testing.peers.metaq import metaq_peer, value_body
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.interop.targets import Target

STORED_HEADER = 20
pytestmark = [pytest.mark.interop, pytest.mark.shows("group")]


def test_group_gets_every_message_in_order_of_its_partition_and_resumes(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("g")
    with (
        zookeeper(metaq.zookeeper) as tree,
        metaq.factory() as factory,
        factory.producer([metaq_topic]) as producer,
    ):
        results = producer.send(metaq_topic, puts(0, 60))
        ends = {str(each.partition): each.offset + STORED_HEADER + 2 for each in results}
        with factory.consumer([metaq_topic], group) as consumer:
            first = consumer.take(60)
            # The consumer commits every 200 ms; what is not committed would come again.
            wait_until(
                lambda: committed(tree, group, metaq_topic) == ends,
                seconds_max=60,
                what=f"the offsets in ZooKeeper are {ends}",
            )
        producer.send(metaq_topic, puts(60, 80))
        with factory.consumer([metaq_topic], group) as consumer:
            second = consumer.take(20)
    assert numbers(first) == list(range(60))
    assert numbers(second) == list(range(60, 80))
    for partition in {each.partition for each in first}:
        of_partition = [int(each.body) for each in first if each.partition == partition]
        assert of_partition == sorted(of_partition)


def test_waiting_consumer_gets_what_is_put_later(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    with (
        metaq.factory() as factory,
        factory.consumer([metaq_topic], unique("g")) as consumer,
        factory.producer([metaq_topic]) as producer,
    ):
        for index in range(5):
            producer.send(metaq_topic, puts(index, index + 1))
            assert numbers(consumer.take(1)) == [index]


def test_new_group_from_the_maximum_gets_only_what_comes_later(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        producer.send(metaq_topic, puts(0, 40))
        with factory.consumer([metaq_topic], unique("g"), from_max=True) as consumer:
            found: list[Got] = []

            def arrived() -> bool:
                # Until the consumer has learnt where the end is, a message may still be before it.
                producer.send(metaq_topic, puts(100, 108))
                found.extend(consumer.take(0, seconds_max=0))
                return bool(found)

            wait_until(arrived, seconds_max=60, what="a message put after the start", poll=0.3)
    assert set(numbers(found)) <= set(range(100, 108))


@pytest.mark.parametrize("consistent_hash", [False, True], ids=["default", "consistent-hash"])
def test_two_consumers_rebalance_when_one_joins_and_when_it_leaves(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str], consistent_hash: bool
) -> None:
    group = unique("g")
    strategy = {"consistent_hash": consistent_hash}
    with (
        metaq.factory() as factory,
        metaq.factory() as other,
        factory.producer([metaq_topic]) as producer,
        factory.consumer([metaq_topic], group, **strategy) as stays,
    ):
        partitions = set(factory.partitions(metaq_topic))
        sent = Numbered(producer.send, metaq_topic)
        wait_for_owners(sent, [stays], partitions)
        with other.consumer([metaq_topic], group, **strategy) as leaves:
            # The hash may give one of the two nothing at all; the default divides evenly.
            wait_for_owners(sent, [stays, leaves], partitions, even=not consistent_hash)
        sent.found += leaves.rest
        wait_for_owners(sent, [stays], partitions)
        # Across both rebalances nothing is lost; a message may come again where its partition
        # moved before the commit.
        wait_until(
            lambda: sent.has_all(stays.take(0)), seconds_max=60, what="every message has arrived"
        )


@pytest.mark.shows("retry")
def test_failing_listener_gets_the_same_message_again_before_later_ones(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        producer.send(metaq_topic, puts(0, 40))
        with factory.consumer([metaq_topic], unique("g"), failures=3) as consumer:
            found = consumer.take(40)
    assert numbers(found) == list(range(40))
    for partition in {each.partition for each in found}:
        of_partition = [int(each.body) for each in found if each.partition == partition]
        assert of_partition == sorted(of_partition)


def test_message_larger_than_the_fetch_size_is_delivered(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    big = bytes(index % 251 for index in range(100_000))
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        producer.send(metaq_topic, [Put(big)])
        options = {"fetch_bytes": 4096, "recover_ms": 500}
        with factory.consumer([metaq_topic], unique("g"), retries_max=50, **options) as consumer:
            found = consumer.take(1)
    assert [each.body == big for each in found] == [True]


@pytest.mark.shows("broadcast")
def test_broadcast_consumer_gets_every_message(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    with (
        metaq.factory("broadcast") as factory,
        factory.producer([metaq_topic]) as producer,
        factory.consumer([metaq_topic], unique("g")) as consumer,
    ):
        producer.send(metaq_topic, puts(0, 30))
        found = consumer.take(30)
    assert numbers(found) == list(range(30))


@pytest.mark.shows("pull")
def test_browser_walks_all_partitions(metaq: MetaqClient, metaq_topic: str) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        assert factory.browse(metaq_topic) == []
        producer.send(metaq_topic, puts(0, 50))
        found = factory.browse(metaq_topic)
    assert numbers(found) == list(range(50))


@pytest.mark.shows("pull")
def test_one_shot_get_reads_whole_messages_from_a_position(
    metaq: MetaqClient, target: Target, metaq_topic: str
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        count = 5 * len(factory.partitions(metaq_topic))
        results = producer.send(metaq_topic, [Put(b"12345")] * count)
        partition = str(results[0].partition)
        broker = int(partition.partition("-")[0])
    url = target.metaq_urls[broker] if len(target.metaq_urls) > 1 else target.metaq_urls[0]
    with metaq.direct(url) as direct:
        all_five = walk(direct, metaq_topic, partition, 0)
        from_third = walk(direct, metaq_topic, partition, 50)
        cut = direct.get(metaq_topic, partition, 0, bytes_max=60)
        at_end = direct.get(metaq_topic, partition, 125)
    assert [each.body for each in all_five] == [b"12345"] * 5
    assert [each.id for each in from_third] == [each.id for each in all_five][2:]
    # Two whole messages fit into 60 bytes; a third comes cut, and is not shown.
    assert cut is not None
    assert (len(cut.messages), cut.next) == (2, 50)
    assert at_end is None


@pytest.mark.shows("pull")
async def test_get_is_answered_with_as_many_bytes_as_were_asked_for(
    metaq: MetaqClient, target: Target, metaq_topic: str
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        results = producer.send(metaq_topic, [Put(b"12345"), Put(b"67890")] * 20)
    first = results[0]
    broker, _, number = str(first.partition).partition("-")
    ends = [each.offset + 25 for each in results if each.partition == first.partition]
    url = target.metaq_urls[int(broker)] if len(target.metaq_urls) > 1 else target.metaq_urls[0]
    async with metaq_peer(int(url.rpartition(":")[2])) as peer:
        partition, end = int(number), max(ends)
        whole = value_body(await peer.get(metaq_topic, partition, 0))
        assert len(whole) == end
        for size in (1, 19, 20, 25, 40, 60, end - 1, end, end + 1):
            assert value_body(await peer.get(metaq_topic, partition, 0, size)) == whole[:size]
            rest = value_body(await peer.get(metaq_topic, partition, 25, size))
            assert rest == whole[25 : 25 + size]


def walk(factory: MetaqFactory, topic: str, partition: str, position: int) -> list[Got]:
    """Fetch until there is nothing more. One answer may hold less than there is, never a gap."""
    found: list[Got] = []
    block = factory.get(topic, partition, position)
    while block is not None:
        assert block.messages
        found += block.messages
        block = factory.get(topic, partition, block.next)
    return found


@pytest.mark.shows("admin")
def test_statistics_are_told_to_the_client(metaq: MetaqClient, metaq_topic: str) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        producer.send(metaq_topic, puts(0, 40))
        brokers = factory.stats()
        of_topic = factory.stats(metaq_topic)
    assert {len(each) for each in (brokers, of_topic)} == {
        len({partition.split("-")[0] for partition in brokers_of(brokers)})
    }
    for state in brokers.values():
        assert {"pid", "broker_id", "port", "version", "cmd_put", "total_messages"} <= set(state)
    assert sum(int(each["message_count"]) for each in of_topic.values()) == 40


def brokers_of(stats: dict[str, dict[str, str]]) -> list[str]:
    return [f"{state['broker_id']}-{address}" for address, state in stats.items()]
