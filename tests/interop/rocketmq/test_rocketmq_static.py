"""Static topics with the original tools and clients of 5.x: made, used, moved to another broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.drivers import PARTS, ROCKETMQ5
from imago_testing.interop.rocketmq import Outgoing
from imago_testing.interop.static_topics import wait_for_owners
from imago_testing.java.driver import JavaDriver, java_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_testing.interop.rocketmq import Admin, Received, RocketmqClient

pytestmark = [pytest.mark.interop, pytest.mark.shows("admin")]
QUEUES = 4


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDriver]:
    home = tmp_path_factory.mktemp("mqadmin")
    module, _ = PARTS[ROCKETMQ5]
    main = "dev.imago.interop.rocketmq.Tools"
    driver = JavaDriver("mqadmin", java_command(module, main, home), home).wait_ready()
    yield driver
    driver.close()


def numbered(first: int, last: int) -> list[Outgoing]:
    return [Outgoing(body=b"%d" % number) for number in range(first, last)]


def numbers(messages: list[Received]) -> list[int]:
    return sorted(int(message.body) for message in messages)


@pytest.mark.full  # test_rocketmq_access.py moves one with access control
@pytest.mark.parametrize("rocketmq", [ROCKETMQ5], indirect=True, ids=["5"])
def test_a_static_topic_keeps_its_queues_when_it_moves(
    rocketmq: RocketmqClient, admin: Admin, tools: JavaDriver, unique: Callable[[str], str]
) -> None:
    topic, group = unique("static"), unique("group")

    def mqadmin(*line: str) -> str:
        printed: str = tools.call("run", namesrv=rocketmq.namesrv, line=list(line))
        assert "Exception" not in printed, printed
        return printed

    cluster, masters = next(iter(admin.call("cluster")["clusters"])), sorted(admin.masters())
    mqadmin("updateStaticTopic", "-t", topic, "-qn", str(QUEUES), "-c", cluster)
    line = ["topicRoute", "-t", topic]

    def route() -> str:
        printed: str = tools.call("run", namesrv=rocketmq.namesrv, line=line)
        return printed

    wait_for_owners(set(masters), route)
    with rocketmq.producer(unique("producers")) as producer:
        before = producer.send(topic, numbered(0, 20))
    # Each shard has two of them, whose numbers of its own are 0 and 1.
    assert {sent.queue.queue for sent in before} == set(range(QUEUES))
    with rocketmq.push(topic, group) as consumer:
        assert numbers(consumer.take(20)) == list(range(20))
    rocketmq.settle()
    mqadmin("remappingStaticTopic", "-t", topic, "-b", masters[-1])
    # Clients with old routes hear 501 until they read them anew, as with the originals.
    wait_for_owners({masters[-1]}, route)
    with rocketmq.producer(unique("producers")) as producer:
        after = producer.send(topic, numbered(20, 40))
    assert {sent.queue.broker for sent in after} == {masters[-1]}
    assert {sent.queue.queue for sent in after} == set(range(QUEUES))
    with rocketmq.push(topic, group) as consumer:
        assert numbers(consumer.take(20)) == list(range(20, 40))
    with rocketmq.push(topic, unique("late")) as consumer:
        assert numbers(consumer.take(40)) == list(range(40))
