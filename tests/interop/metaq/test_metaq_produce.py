"""Original MetaQ producers: simple, with call-back, one-way and ordered; and what was stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.metaq import MetaqClient, Put, PutResult
from imago_testing.interop.targets import METAQ_PATTERN
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.interop.targets import Target

pytestmark = [pytest.mark.interop, pytest.mark.shows("send")]
ALL_BYTES = bytes(range(256))


def puts(count: int) -> list[Put]:
    return [Put(f"{index}".encode()) for index in range(count)]


def test_puts_rotate_over_all_partitions_and_positions_grow_by_stored_size(
    metaq: MetaqClient, metaq_topic: str
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        partitions = factory.partitions(metaq_topic)
        results = producer.send(metaq_topic, [Put(b"12345")] * (3 * len(partitions)))
    assert all(each.success for each in results)
    assert len({each.id for each in results}) == len(results)
    for partition in partitions:
        # A stored message is a header of 20 bytes and the body.
        assert [each.offset for each in results if each.partition == partition] == [0, 25, 50]


@pytest.mark.parametrize(
    ("body", "attribute"),
    [
        (ALL_BYTES, None),
        (b"", None),
        (b"payload", "plain"),
        (b"payload", "Attribüt 漢字"),
        (b"payload", ""),
        (b"", "only an attribute"),
    ],
    ids=["all-bytes", "empty", "attribute", "unicode", "empty-attribute", "no-payload"],
)
def test_message_comes_back_byte_for_byte(
    metaq: MetaqClient, metaq_topic: str, body: bytes, attribute: str | None
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        [result] = producer.send(metaq_topic, [Put(body, attribute)])
        [found] = factory.browse(metaq_topic)
    assert (found.body, found.attribute, found.topic) == (body, attribute, metaq_topic)
    assert found.id == result.id


def test_callback_puts_all_succeed(metaq: MetaqClient, metaq_topic: str) -> None:
    outgoing = puts(64)
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        results = producer.send_callback(metaq_topic, outgoing)
        found = factory.browse(metaq_topic)
    assert all(each.success for each in results)
    assert sorted(each.body for each in found) == sorted(each.body for each in outgoing)


def test_one_way_puts_arrive(metaq: MetaqClient, metaq_topic: str) -> None:
    outgoing = puts(32)
    with metaq.factory("async") as factory, factory.producer([metaq_topic]) as producer:
        producer.send_one_way(metaq_topic, outgoing)
        wait_until(
            lambda: len(factory.browse(metaq_topic)) >= len(outgoing),
            seconds_max=60,
            what="all one-way messages are stored",
        )
        found = factory.browse(metaq_topic)
    assert sorted(each.body for each in found) == sorted(each.body for each in outgoing)


@pytest.mark.shows("send-ordered")
def test_ordered_producer_keeps_equal_attributes_in_one_partition_in_order(
    metaq: MetaqClient, metaq_topic: str
) -> None:
    with metaq.factory() as factory:
        partitions = counted(factory.partitions(metaq_topic))
    outgoing = [
        Put(f"{step}".encode(), key) for step in range(5) for key in ("red", "green", "blue")
    ]
    with (
        metaq.factory("ordered", partitions={f"topic.num.{metaq_topic}": partitions}) as factory,
        factory.producer([metaq_topic], selector="ordered-by-attribute") as producer,
    ):
        results = producer.send(metaq_topic, outgoing)
        found = factory.browse(metaq_topic)
    assert all(each.success for each in results)
    for key in ("red", "green", "blue"):
        where = {
            r.partition for r, put in zip(results, outgoing, strict=True) if put.attribute == key
        }
        assert len(where) == 1
        assert [int(each.body) for each in found if each.attribute == key] == [0, 1, 2, 3, 4]


def counted(partitions: list[str]) -> str:
    """Partitions as the ordered producer is configured with them: <broker id>:<count>;…"""
    brokers = [each.split("-")[0] for each in partitions]
    return ";".join(f"{broker}:{brokers.count(broker)}" for broker in sorted(set(brokers)))


def test_topic_that_the_broker_does_not_have_is_refused(
    metaq: MetaqClient, target: Target, unique: Callable[[str], str]
) -> None:
    nowhere = unique("nowhere")
    with metaq.factory() as factory, factory.producer([nowhere]) as producer:
        with pytest.raises(DriverError) as caught:
            producer.send(nowhere, [Put(b"x")])
        assert "no aviable partition" in caught.value.text
    # Without ZooKeeper the client asks the broker, which says no itself.
    results: list[PutResult] = []
    with metaq.direct(target.metaq_urls[0]) as factory, factory.producer([nowhere]) as producer:
        results = producer.send(nowhere, [Put(b"x")])
    assert [(each.success, nowhere in (each.error or "")) for each in results] == [(False, True)]


def test_who_publishes_right_after_the_first_put_to_a_pattern_topic_finds_its_partitions(
    metaq: MetaqClient, target: Target, unique: Callable[[str], str]
) -> None:
    """What a client does not find when it publishes it does not look for again."""
    with metaq.direct(target.metaq_urls[0]) as direct, metaq.factory() as factory:
        for _ in range(10):
            topic = unique("pattern")
            with direct.producer([topic]) as first:
                assert [each.success for each in first.send(topic, puts(1))] == [True]
            with factory.producer([topic]) as second:
                assert [each.success for each in second.send(topic, puts(3))] == [True] * 3


def test_a_pattern_topic_of_the_configuration_stands_in_the_tree_under_its_pattern(
    metaq: MetaqClient, unique: Callable[[str], str]
) -> None:
    """A producer whose default topic is the pattern reaches every topic that it makes."""
    topic = unique("pattern")
    with (
        metaq.factory() as factory,
        factory.producer([], default_topic=METAQ_PATTERN) as producer,
    ):
        partitions = factory.partitions(METAQ_PATTERN)
        results = producer.send(topic, puts(2 * len(partitions)))
    assert all(each.success for each in results)
    assert {each.partition for each in results} == set(partitions)


def test_direct_puts_go_to_a_partition_the_broker_chose(
    metaq: MetaqClient, target: Target, metaq_topic: str
) -> None:
    with (
        metaq.direct(target.metaq_urls[0]) as direct,
        direct.producer([metaq_topic]) as producer,
        metaq.factory() as factory,
    ):
        results = producer.send(metaq_topic, puts(20))
        found = factory.browse(metaq_topic)
    assert all(each.success for each in results)
    assert sorted(int(each.body) for each in found) == list(range(20))
