"""The administration client of the original RocketMQ: what its command line tools call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.rocketmq import Admin, Outgoing, RocketmqClient
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.interop, pytest.mark.shows("admin")]


def test_cluster_lists_every_master_with_its_address(admin: Admin) -> None:
    cluster = admin.call("cluster")
    assert cluster["brokers"]
    assert {name for names in cluster["clusters"].values() for name in names} == set(
        cluster["brokers"]
    )
    for addresses in cluster["brokers"].values():
        assert addresses["0"].startswith("127.0.0.1:")


@pytest.mark.both_clients
def test_topic_is_created_changed_and_deleted(admin: Admin, unique: Callable[[str], str]) -> None:
    name = unique("managed")
    admin.create_topic(name, queues=3)
    for address in admin.masters().values():
        assert admin.call("topic_config", topic=name, address=address) == {
            "topic": name,
            "read_queues": 3,
            "write_queues": 3,
            "perm": 6,
        }
    admin.create_topic(name, queues=5, perm=4)
    for address in admin.masters().values():
        config = admin.call("topic_config", topic=name, address=address)
        assert (config["read_queues"], config["perm"]) == (5, 4)
        admin.call("delete_topic", topic=name, address=address)
        wait_until(
            lambda at=address: not has_topic(admin, name, at),  # type: ignore[misc]  # bound now
            seconds_max=60,
            what=f"{name} is gone from {address}",
        )


def has_topic(admin: Admin, name: str, address: str) -> bool:
    try:
        return admin.call("topic_config", topic=name, address=address) is not None
    except DriverError:
        return False


def test_topic_statistics_count_the_messages_of_each_queue(
    rocketmq: RocketmqClient, admin: Admin, topic: str
) -> None:
    with rocketmq.producer() as producer:
        queues = producer.queues(topic)
        producer.send(topic, [Outgoing(body=b"x")] * (2 * len(queues)))
    wait_until(
        lambda: {each["max"] for each in admin.call("topic_stats", topic=topic)} == {2},
        seconds_max=60,
        what="two messages in each queue",
    )
    stats = admin.call("topic_stats", topic=topic)
    assert len(stats) == len(queues)
    assert {each["min"] for each in stats} == {0}
    assert all(each["updated_ms"] > 0 for each in stats)


@pytest.mark.both_clients
def test_consumer_progress_and_connections_show_the_group(
    rocketmq: RocketmqClient, admin: Admin, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("g")
    with rocketmq.producer() as producer:
        producer.send(topic, [Outgoing(body=b"x")] * 16)
        with rocketmq.push(topic, group) as consumer:
            consumer.take(16)
            connections = admin.call("consumers", group=group)
        rocketmq.settle()
        producer.send(topic, [Outgoing(body=b"x")] * 8)
    assert len(connections["ids"]) == 1
    assert (connections["type"], connections["model"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert topic in connections["topics"]
    wait_until(
        lambda: lag(admin, group, topic) == (16, 8),
        seconds_max=60,
        what="16 messages consumed, 8 waiting",
    )
    assert group in admin.call("groups_of_topic", topic=topic)
    with pytest.raises(DriverError):
        admin.call("consumers", group=group)


def lag(admin: Admin, group: str, topic: str) -> tuple[int, int]:
    """How many messages of the topic the group consumed, and how many wait."""
    queues = [each for each in admin.call("progress", group=group) if each["topic"] == topic]
    consumed = sum(each["consumer_offset"] for each in queues)
    return consumed, sum(each["broker_offset"] for each in queues) - consumed


def test_group_is_created_listed_and_forgotten(admin: Admin, unique: Callable[[str], str]) -> None:
    group = unique("managed")
    for address in admin.masters().values():
        admin.call("create_group", group=group, address=address, retries_max=3)
        listed = admin.call("groups", address=address)[group]
        assert listed == {"retries_max": 3, "retry_queues": 1, "enabled": True}
        admin.call("delete_group", group=group, address=address)
        # The original 5 broker at once makes it anew, with the default settings.
        assert admin.call("groups", address=address).get(group, {}).get("retries_max") != 3


def test_broker_tells_its_state_and_settings(admin: Admin) -> None:
    for name, address in admin.masters().items():
        state = admin.call("broker_runtime", address=address)
        assert {"brokerVersionDesc", "bootTimestamp", "msgPutTotalTodayNow"} <= set(state)
        settings = admin.call("broker_config", address=address)
        assert settings["brokerName"] == name


def test_name_service_keeps_values(admin: Admin, unique: Callable[[str], str]) -> None:
    namespace = unique("namespace")
    admin.call("put_kv", namespace=namespace, key="colour", value="grün")
    assert admin.call("get_kv", namespace=namespace, key="colour") == "grün"


def test_topic_without_route_is_said_to_have_none(
    admin: Admin, unique: Callable[[str], str]
) -> None:
    with pytest.raises(DriverError) as caught:
        admin.call("route", topic=unique("never-made"))
    assert caught.value.code == 17
