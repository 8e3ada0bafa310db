"""Original push consumers of 5.x whose brokers deal out the queues, and say how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_client.blocking import Client
from imago_testing.interop.rocketmq import Outgoing, RocketmqClient
from imago_testing.processes.servers import wait_until
from imago_wire.remoting.bodies.config import SubscriptionGroupConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_testing.interop.rocketmq import PushConsumer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.shows("pop", clients=("rocketmq5",)),
]
COUNT = 40


@pytest.fixture
def client(rocketmq5: RocketmqClient) -> Iterator[Client]:
    with Client(rocketmq5.namesrv) as client:
        yield client


@pytest.fixture
def orders(rocketmq5: RocketmqClient, client: Client, unique: Callable[[str], str]) -> str:
    """A topic of four queues on each shard, with a route."""
    name = unique("topic")
    with rocketmq5.admin() as admin:
        masters = set(admin.masters())
        admin.create_topic(name, queues=4)

    def has_route() -> bool:
        known = name in client.admin.topics()
        return known and {queue.shard for queue in client.producer().queues(name)} == masters

    wait_until(has_route, seconds_max=60, what=f"the route of {name} names every shard")
    return name


def made_group(client: Client, unique: Callable[[str], str]) -> str:
    group = unique("group")
    client.admin.create_group(SubscriptionGroupConfig(group_name=group))
    return group


def send(rocketmq5: RocketmqClient, topic: str, count: int = COUNT) -> list[bytes]:
    with rocketmq5.producer() as producer:
        producer.send(topic, [Outgoing(body=b"%d" % number) for number in range(count)])
    return sorted(b"%d" % number for number in range(count))


def taken(consumer: PushConsumer, count: int = COUNT) -> list[bytes]:
    return sorted(message.body for message in consumer.take(count, seconds_max=100))


def settled(client: Client, group: str, topic: str) -> None:
    """Wait until everything is acknowledged."""

    def is_done() -> bool:
        rows = client.admin.describe_group(group).progress
        mine = [row for row in rows if row.queue.topic == topic]
        return bool(mine) and all(row.lag == 0 for row in mine)

    wait_until(is_done, seconds_max=100, what=f"{group} has acknowledged all of {topic}")


def test_push_consumer_pops_and_acknowledges_each_message_once(
    rocketmq5: RocketmqClient, client: Client, orders: str, unique: Callable[[str], str]
) -> None:
    group = made_group(client, unique)
    client.admin.set_request_mode(group, orders, "pop")
    with rocketmq5.push(orders, group, dealt_out=True) as consumer:
        bodies = send(rocketmq5, orders)
        assert taken(consumer) == bodies
        settled(client, group, orders)
        assert consumer.take(1, seconds_max=2) == []


def test_message_whose_listener_fails_comes_again_with_its_count(
    rocketmq5: RocketmqClient, client: Client, orders: str, unique: Callable[[str], str]
) -> None:
    group = made_group(client, unique)
    client.admin.set_request_mode(group, orders, "pop")
    with rocketmq5.push(orders, group, dealt_out=True, failures=1) as consumer:
        send(rocketmq5, orders, 1)
        first, again = consumer.take(2, seconds_max=200)
        settled(client, group, orders)
    assert (first.body, again.body) == (b"0", b"0")
    assert again.reconsumed > first.reconsumed


def test_group_that_is_switched_misses_nothing(
    rocketmq5: RocketmqClient, client: Client, orders: str, unique: Callable[[str], str]
) -> None:
    group = made_group(client, unique)
    for mode in ("pull", "pop", "pull"):
        client.admin.set_request_mode(group, orders, mode)
        with rocketmq5.push(orders, group, dealt_out=True) as consumer:
            bodies = send(rocketmq5, orders)
            found: set[bytes] = set()
            while len(found) < COUNT:
                more = consumer.take(1, seconds_max=100)
                assert more, f"{len(found)} of {COUNT} by {mode}"
                found |= {message.body for message in more}
            assert sorted(found) == bodies
            settled(client, group, orders)
        rocketmq5.settle()  # else it may still take some of the next messages, for nobody


def test_our_own_consumer_pops_beside_an_original_one(
    rocketmq5: RocketmqClient, client: Client, orders: str, unique: Callable[[str], str]
) -> None:
    group = made_group(client, unique)
    client.admin.set_request_mode(group, orders, "pop")
    bodies = send(rocketmq5, orders)
    ours = client.pop_consumer(group)
    mine = ours.pop(orders, poll_s=20.0)
    assert mine
    ours.acknowledge(mine)
    with rocketmq5.push(orders, group, dealt_out=True) as consumer:
        others = taken(consumer, COUNT - len(mine)) if len(mine) < COUNT else []
        settled(client, group, orders)
    assert sorted([message.body for message in mine] + others) == bodies
