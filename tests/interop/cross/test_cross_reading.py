"""What one protocol's original client wrote, the other's reads, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.metaq import Got, MetaqClient, Put
from imago_testing.interop.rocketmq import Admin, Outgoing, Received, RocketmqClient
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.interop, pytest.mark.shows("across")]
ALL_BYTES = bytes(range(256))
TEXT = "compress me, ünïcode 漢字 " * 800
Pair = tuple[bytes, str | None]
"""A body with its attribute (MetaQ) or tags (RocketMQ)."""
PAIRS: list[Pair] = [
    (ALL_BYTES, None),
    (b"plain", "TagA"),
    ("grüße 漢字".encode(), "Tag-Ü-漢"),
    (b"\x00\x00\x00\x05looks like an attribute", None),
    (TEXT.encode(), "long"),
    (b"x", "TagA"),
]


def test_rocketmq_reads_what_metaq_put(
    metaq: MetaqClient, rocketmq: RocketmqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        results = producer.send(metaq_topic, [Put(body, tag) for body, tag in PAIRS * 4])
        partitions = factory.partitions(metaq_topic)
    assert all(each.success for each in results)
    with rocketmq.pull() as puller, rocketmq.push(metaq_topic, unique("g")) as consumer:
        assert len(puller.queues(metaq_topic)) == len(partitions)
        pushed = consumer.take(len(results))
        pulled = puller.drain(metaq_topic, len(results))
    assert sorted(pairs(pushed)) == sorted(pairs(pulled)) == sorted(map(printable, PAIRS * 4))
    # Queue and partition are the same thing, so order in them is the same order.
    where = [each.partition for each in results]
    for shard, queue in {(each.queue.broker, each.queue.queue) for each in pulled}:
        number = shard.rpartition("-")[2]
        expected = [
            printable(pair)
            for pair, partition in zip(PAIRS * 4, where, strict=True)
            if partition == f"{number}-{queue}"
        ]
        found = [each for each in pulled if (each.queue.broker, each.queue.queue) == (shard, queue)]
        assert pairs(found) == expected


def test_rocketmq_filters_metaq_messages_by_their_attribute(
    metaq: MetaqClient, rocketmq: RocketmqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        producer.send(metaq_topic, [Put(body, tag) for body, tag in PAIRS * 2])
    with rocketmq.push(metaq_topic, unique("g"), expression="TagA || long") as consumer:
        found = consumer.take(6)
    wanted = [printable(pair) for pair in PAIRS * 2 if pair[1] in {"TagA", "long"}]
    assert sorted(pairs(found)) == sorted(wanted)


def test_metaq_reads_what_rocketmq_sent(
    metaq: MetaqClient, rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    outgoing = [
        Outgoing(body=body, tags=tag, keys="K", properties={"p": "v"}) for body, tag in PAIRS
    ]
    with rocketmq.producer() as producer:
        sent = producer.send(topic, outgoing)
        # A batch is stored message by message, a one-way send like any other.
        producer.send_batch(topic, [each for each in outgoing if len(each.body) < 1000])
        producer.send_one_way(topic, [Outgoing(body=b"one way", tags="quick")])
    everything = [*PAIRS, *[pair for pair in PAIRS if len(pair[0]) < 1000], (b"one way", "quick")]
    with metaq.factory() as factory:
        wait_until(
            lambda: len(factory.partitions(topic)) >= len({each.queue for each in sent}),
            seconds_max=60,
            what="MetaQ clients see the topic in ZooKeeper",
        )
        with factory.consumer([topic], unique("g")) as consumer:
            consumed = consumer.take(len(everything))
        browsed = factory.browse(topic)
    expected = sorted(map(printable, everything))
    assert sorted(metaq_pairs(consumed)) == sorted(metaq_pairs(browsed)) == expected
    assert len({each.id for each in consumed}) == len(everything)


@pytest.mark.shows("across", "compressed")
@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
def test_metaq_reads_compressed_bodies_inflated(
    metaq: MetaqClient, rocketmq: RocketmqClient, topic: str, compression: str
) -> None:
    body = TEXT.encode()
    with rocketmq.producer(compression=compression) as producer, metaq.factory() as factory:
        producer.send(topic, [Outgoing(body=body, tags="T")] * 3)
        found: list[Got] = []

        def all_there() -> bool:
            found[:] = factory.browse(topic)
            return len(found) == 3

        wait_until(all_there, seconds_max=60, what="three messages in the browser")
    assert metaq_pairs(found) == [printable((body, "T"))] * 3


def test_both_protocols_write_into_the_same_queues_and_read_the_same_order(
    metaq: MetaqClient, rocketmq: RocketmqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    with (
        metaq.factory() as factory,
        factory.producer([metaq_topic]) as metaq_producer,
        rocketmq.producer() as rocketmq_producer,
    ):
        for index in range(40):
            metaq_producer.send(metaq_topic, [Put(f"m{index}".encode(), "metaq")])
            rocketmq_producer.send(metaq_topic, [Outgoing(body=f"r{index}".encode(), tags="rmq")])
        with factory.consumer([metaq_topic], unique("g")) as consumer:
            through_metaq = consumer.take(80)
        with rocketmq.pull() as puller:
            through_rocketmq = puller.drain(metaq_topic, 80)
    assert len(through_metaq) == len(through_rocketmq) == 80
    for partition in {str(each.partition) for each in through_metaq}:
        shard, queue = map(int, partition.split("-"))
        bodies = [each.body for each in through_metaq if each.partition == partition]
        assert bodies == [
            each.body
            for each in through_rocketmq
            if (each.queue.broker, each.queue.queue) == (f"shard-{shard}", queue)
        ]


def test_one_version_reads_what_the_other_sent(
    rocketmq4: RocketmqClient, rocketmq5: RocketmqClient, unique: Callable[[str], str]
) -> None:
    name = unique("versions")
    outgoing = [Outgoing(body=body, tags=tag, keys="k1 k2") for body, tag in PAIRS]
    with rocketmq4.admin() as admin:
        make_topic(admin, name)
    for writer, reader in ((rocketmq4, rocketmq5), (rocketmq5, rocketmq4)):
        with writer.producer() as producer, reader.push(name, unique("g")) as consumer:
            before = len(drained(reader, name))
            producer.send(name, outgoing)
            consumer.take(before + len(outgoing))
        assert sorted(pairs(drained(reader, name))) == sorted(
            list(map(printable, PAIRS)) * (before // len(outgoing) + 1)
        )


def make_topic(admin: Admin, name: str) -> None:
    admin.create_topic(name)
    wait_until(
        lambda: name in admin.call("topics"), seconds_max=60, what=f"{name} is in the name service"
    )


def drained(client: RocketmqClient, topic: str) -> list[Received]:
    with client.pull() as puller:
        return puller.stored(topic)


def printable(pair: Pair) -> tuple[bytes, str]:
    """The pair, sortable: an absent tag stands first, and differs from an empty one."""
    body, tag = pair
    return body, "\0 none" if tag is None else tag


def pairs(messages: list[Received]) -> list[tuple[bytes, str]]:
    return [printable((each.body, each.tags)) for each in messages]


def metaq_pairs(messages: list[Got]) -> list[tuple[bytes, str]]:
    return [printable((each.body, each.attribute)) for each in messages]
