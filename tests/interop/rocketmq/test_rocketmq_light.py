"""Original clients and RocketMQ's light queues (LMQ), as its own examples read them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, NamedTuple

import pytest

from imago_testing.interop.drivers import PARTS, ROCKETMQ5
from imago_testing.interop.rocketmq import Outgoing, Queue, Received, RocketmqClient, Sent
from imago_testing.interop.targets import TargetName, chosen_target
from imago_testing.java.driver import JavaDriver, java_command
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.processes.servers import wait_until
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from imago_testing.interop.rocketmq import Admin, PullConsumer

pytestmark = [pytest.mark.interop, pytest.mark.shows("light")]
TOOLS = "dev.imago.interop.rocketmq.Tools"


class Light(NamedTuple):
    """A topic, one of its queues, and a light queue of the broker that has it."""

    topic: str
    parent: Queue
    queue: Queue

    @property
    def name(self) -> str:
        return self.queue.topic


@pytest.fixture
def light(rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]) -> Light:
    name = "%LMQ%" + unique("light")
    with rocketmq.producer() as producer:
        parent = sorted(producer.queues(topic))[1]
    return Light(topic, parent, Queue(name, parent.broker, 0))


def send(
    rocketmq: RocketmqClient, light: Light, count: int, names: str = "", tags: str | None = None
) -> list[Sent]:
    dispatch = {"INNER_MULTI_DISPATCH": names or light.name}
    messages = [
        Outgoing(body=b"%d" % number, tags=tags, properties={**dispatch, "n": str(number)})
        for number in range(count)
    ]
    with rocketmq.producer() as producer:
        return producer.send_to_queue(light.parent, messages)


def when_there(puller: PullConsumer, light: Light, count: int) -> None:
    puller.find_brokers(light.topic)
    wait_until(
        lambda: puller.bounds(light.queue)["max"] == count,
        seconds_max=60,
        what=f"{count} messages are in {light.name}",
    )


def offsets(messages: list[Received]) -> list[str]:
    return [message.properties["INNER_MULTI_QUEUE_OFFSET"] for message in messages]


@pytest.mark.both_clients
def test_pull_consumer_reads_a_light_queue(rocketmq: RocketmqClient, light: Light) -> None:
    other = light.name + "-other"
    with rocketmq.producer() as producer:
        producer.send_to_queue(light.parent, [Outgoing(body=b"plain")])
    sent = send(rocketmq, light, 5, f"{light.name},{other}")
    send(rocketmq, light, 1, other)
    with rocketmq.pull() as puller:
        when_there(puller, light, 5)
        found = puller.pull(light.queue, 0, count_max=3)
        rest = puller.pull(light.queue, found.next)
        parent = puller.pull(light.parent, 1, count_max=5)
        end = puller.pull(light.queue, 5)
        beyond = puller.pull(light.queue, 50)
    assert (found.status, found.next, found.min, found.max) == ("FOUND", 3, 0, 5)
    messages = [*found.messages, *rest.messages]
    assert offsets(messages) == [f"{at},{at}" for at in range(5)]
    assert [each.body for each in messages] == [b"%d" % number for number in range(5)]
    assert {(each.queue.topic, each.queue.broker) for each in messages} == {
        (light.topic, light.queue.broker)
    }
    assert [each.offset for each in messages] == [each.offset for each in sent]
    assert [each.physical_offset for each in messages] == [
        each.physical_offset for each in parent.messages
    ]
    assert (end.status, end.next) == ("NO_NEW_MSG", 5)
    assert beyond.status == "OFFSET_ILLEGAL"


@pytest.mark.both_clients
def test_pull_waits_for_the_first_message_of_a_light_queue(
    rocketmq: RocketmqClient, light: Light
) -> None:
    with rocketmq.pull() as puller:
        puller.find_brokers(light.topic)
        assert puller.bounds(light.queue)["max"] == 0
        waiting = puller.wait(light.queue, 0)
        send(rocketmq, light, 1)
        found = waiting()
        assert [each.body for each in found.messages] == [b"0"]
        when_there(puller, light, 1)
        assert puller.offset_at(light.queue, found.messages[0].stored_ms) == 0
        puller.commit(light.queue, 1)
        wait_until(
            lambda: puller.committed(light.queue) == 1, seconds_max=60, what="it is committed"
        )


def test_filters_select_in_a_light_queue(rocketmq: RocketmqClient, light: Light) -> None:
    send(rocketmq, light, 2, tags="red")
    send(rocketmq, light, 1, tags="blue")
    with rocketmq.pull() as puller:
        when_there(puller, light, 3)
        found = puller.pull(light.queue, 0, expression="red")
    assert (len(found.messages), found.next) == (2, 3)


@pytest.mark.both_clients
def test_push_consumer_reads_a_light_queue(
    rocketmq: RocketmqClient, light: Light, unique: Callable[[str], str]
) -> None:
    send(rocketmq, light, 3)
    options = {"parent": light.topic, "broker": light.queue.broker}
    with rocketmq.push(light.name, unique("group"), **options) as consumer:
        found = consumer.take(3, seconds_max=100)
        send(rocketmq, light, 4)
        found += consumer.take(4, seconds_max=100)
    assert sorted(offsets(found)) == [str(at) for at in range(7)]
    assert {each.queue.topic for each in found} == {light.topic}


def test_delayed_message_comes_to_the_light_queue_when_it_is_due(
    rocketmq: RocketmqClient, light: Light
) -> None:
    late = Outgoing(body=b"late", delay_level=1, properties={"INNER_MULTI_DISPATCH": light.name})
    with rocketmq.pull() as puller:
        puller.find_brokers(light.topic)
        waiting = puller.wait(light.queue, 0)
        with rocketmq.producer() as producer:
            producer.send_to_queue(light.parent, [late])
        (found,) = waiting().messages
    assert (found.body, offsets([found])) == (b"late", ["0"])


@pytest.mark.parametrize("failures", [0, 1])
def test_push_consumer_pops_a_light_queue(
    rocketmq5: RocketmqClient, failures: int, request: pytest.FixtureRequest
) -> None:
    unique = request.getfixturevalue("unique")
    with rocketmq5.admin() as admin:
        light = _light(rocketmq5, admin, unique)
        address = admin.masters()[light.queue.broker]
    group = unique("group")
    asyncio.run(have_popped(address, light.name, group))
    send(rocketmq5, light, 3)
    options = {"parent": light.topic, "broker": light.queue.broker, "dealt_out": True}
    with rocketmq5.push(light.name, group, **options, failures=failures) as consumer:
        found = consumer.take(3 + failures, seconds_max=200)
        send(rocketmq5, light, 2)
        found += consumer.take(2, seconds_max=200)
        assert consumer.take(1, seconds_max=2) == []
    assert sorted(set(offsets(found))) == [str(at) for at in range(5)]
    assert len(found) == 5 + failures


def _light(rocketmq: RocketmqClient, admin: Admin, unique: Callable[[str], str]) -> Light:
    topic = unique("topic")
    admin.create_topic(topic)
    masters = set(admin.masters())
    wait_until(
        lambda: (
            topic in admin.call("topics")
            and set(admin.call("route", topic=topic)["queues"]) == masters
        ),
        seconds_max=60,
        what=f"all brokers are in the route of {topic}",
    )
    with rocketmq.producer() as producer:
        parent = sorted(producer.queues(topic))[1]
    return Light(topic, parent, Queue("%LMQ%" + unique("light"), parent.broker, 0))


async def have_popped(address: str, topic: str, group: str) -> None:
    """What `mqadmin setConsumeMode` does, which asks for a route."""
    peer = await RemotingPeer.connect(int(address.rpartition(":")[2]))
    made = {"groupName": group, "consumeEnable": True}
    body = json.dumps(made).encode()
    assert not (await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code
    mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 8}
    body = json.dumps(mode).encode()
    answer = await peer.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await peer.close()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDriver]:
    home: Path = tmp_path_factory.mktemp("mqadmin")
    module, _ = PARTS[ROCKETMQ5]
    driver = JavaDriver("mqadmin", java_command(module, TOOLS, home), home).wait_ready()
    yield driver
    driver.close()


def test_tools_look_into_a_light_queue_by_its_parent_topic(
    rocketmq5: RocketmqClient, tools: JavaDriver, unique: Callable[[str], str]
) -> None:
    with rocketmq5.admin() as admin:
        light = _light(rocketmq5, admin, unique)
    group = unique("group")
    send(rocketmq5, light, 3)
    with rocketmq5.pull(group) as puller:
        when_there(puller, light, 3)
        puller.commit(light.queue, 2)
        wait_until(lambda: puller.committed(light.queue) == 2, seconds_max=60, what="committed")

    def run(line: str) -> str:
        return str(tools.call("run", namesrv=rocketmq5.namesrv, line=line.split()))

    status = run(f"topicStatus -t {light.name} -c {light.topic}").split("\n")
    row = next(line.split() for line in status if light.queue.broker in line.split())
    assert row[:4] == [light.queue.broker, "0", "0", "3"]
    progress = run(f"consumerProgress -g {group} -t {light.name} -c {light.topic}")
    rows = [line.split() for line in progress.split("\n") if light.name in line]
    assert [row[2:5] for row in rows if row[1] == light.queue.broker] == [["0", "3", "2"]]
    # printMsg -l asks for the smallest offset before it has looked for the parent's brokers, so it
    # fails at an original broker, too.


def test_name_service_shows_no_light_queue(
    rocketmq: RocketmqClient, light: Light, admin: Admin
) -> None:
    send(rocketmq, light, 1)
    with rocketmq.pull() as puller:
        when_there(puller, light, 1)
    assert not [name for name in admin.call("topics") if name.startswith("%LMQ%")]
    if chosen_target() is TargetName.IMAGO:
        assert light.topic in admin.call("topics")
