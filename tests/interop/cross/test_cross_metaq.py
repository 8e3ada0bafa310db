"""Original MetaQ clients while partitions are closed, deleted and opened by our administration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_cli.clusters.admin_http import ask
from imago_testing.interop.metaq import Got, MetaqClient, Put
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.interop.targets import Target

pytestmark = [pytest.mark.interop, pytest.mark.shows("admin")]


def puts(first: int, last: int) -> list[Put]:
    return [Put(f"{index}".encode()) for index in range(first, last)]


def numbers(messages: list[Got]) -> set[int]:
    return {int(each.body) for each in messages}


def test_point_6_a_consumer_at_0_is_moved_to_where_the_partition_begins(
    metaq: MetaqClient, target: Target, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        producer.send(metaq_topic, puts(0, 40))
        everywhere(target, metaq_topic, "close-partitions", first=0, last=3)
        everywhere(target, metaq_topic, "delete-partitions", first=0, last=3)
        everywhere(target, metaq_topic, "open-partitions")
        producer.send(metaq_topic, puts(100, 140))
        with factory.consumer([metaq_topic], unique("g")) as consumer:
            found: set[int] = set()

            def all_later() -> bool:
                found.update(numbers(consumer.take(1, seconds_max=1)))
                return set(range(100, 140)) <= found

            wait_until(all_later, seconds_max=60, what="all that was put later")
    assert found == set(range(100, 140))


def test_point_18_the_ordered_producer_keeps_what_a_closed_partition_refuses(
    metaq: MetaqClient, target: Target, metaq_topic: str
) -> None:
    brokers = {url: number for number, url in enumerate(target.metaq_urls)}
    counts = ";".join(f"{number}:4" for number in brokers.values())
    with (
        metaq.factory("ordered", partitions={f"topic.num.{metaq_topic}": counts}) as factory,
        factory.producer([metaq_topic], selector="ordered-by-attribute") as producer,
    ):
        everywhere(target, metaq_topic, "close-partitions", first=0, last=3)
        [kept] = producer.send(metaq_topic, [Put(b"kept", "red")])
        everywhere(target, metaq_topic, "open-partitions")
        found = factory.browse(metaq_topic)
    assert kept.success, "the producer says that it has it, on its own disk"
    assert [each.body for each in found] in ([], [b"kept"])
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        everywhere(target, metaq_topic, "close-partitions", first=0, last=3)
        [refused] = producer.send(metaq_topic, [Put(b"refused")])
        everywhere(target, metaq_topic, "open-partitions")
    assert (refused.success, refused.error) == (False, "403")


def everywhere(target: Target, topic: str, what: str, **body: int) -> None:
    for admin in target.admins:
        ask(admin, f"/admin/v1/metaq/topics/{topic}/{what}", body)


@pytest.mark.shows("filter", clients=("metaq",))
def test_a_group_with_a_filter_gets_what_it_wants_and_other_groups_get_all(
    metaq: MetaqClient, target: Target, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    filtered = unique("red")
    for admin in target.admins:
        settings = {"attributes": {f"metaq.filter.{filtered}": "tags: red || dark red"}}
        ask(admin, f"/admin/v1/topics/{metaq_topic}", settings, method="PUT")
    colours = ["red", "blue", None, "dark red", "blue", "blue"]
    messages = [Put(b"%d" % index, colours[index % 6]) for index in range(120)]
    wanted = {index for index in range(120) if index % 6 in (0, 3)}
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        assert all(each.success for each in producer.send(metaq_topic, messages))
        with (
            factory.consumer([metaq_topic], filtered, fetch_bytes=200) as consumer,
            factory.consumer([metaq_topic], unique("all")) as other,
        ):
            found = [int(each.body) for each in consumer.take(len(wanted))]
            # What is put later goes through the same filter, and behind it nothing is held up.
            producer.send(metaq_topic, [Put(b"1000", "blue"), Put(b"1001", "red")] * 8)
            found += [int(each.body) for each in consumer.take(8)]
            every = [int(each.body) for each in other.take(136)]
    assert sorted(found) == sorted([*wanted, *[1001] * 8])
    assert len(every) == 136
