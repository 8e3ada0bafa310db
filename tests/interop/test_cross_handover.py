"""Original producers and consumers of both protocols while the master of their shard stops."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.metaq import MetaqClient, Put
from imago_testing.interop.rocketmq import Outgoing, RocketmqClient
from imago_testing.interop.targets import METAQ_TOPICS, ROCKETMQ_VERSIONS, imago_up
from imago_testing.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from imago_testing.java.driver import JavaDriver

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
SENDS_AROUND = 100
"""Messages of each producer before the master is asked to stop, and after another leads."""
PAUSE_SECONDS = 0.005
OWN_TIMEOUT = "等待响应超时"
"""What the MetaQ client itself says when it has waited for an answer for too long."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, object]]:
    """One shard of three members."""
    options = ["--replicas", "3", "--no-restart"]
    with imago_up(tmp_path_factory.mktemp("cluster"), shards=1, options=options) as ready:
        yield ready


class Stream:
    """One producer's messages, numbered, and the bodies that its consumer has seen."""

    def __init__(
        self, name: str, send: Callable[[bytes], str | None], take: Callable[[], Sequence[bytes]]
    ) -> None:
        self.name = name
        self.sent: list[bytes] = []
        """Those that were acknowledged."""
        self.errors: list[str] = []
        self.stop = threading.Event()
        self.got: list[bytes] = []
        self._send, self._take = send, take
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def finish(self) -> None:
        """Send no more; wait until everything has been consumed."""
        self.stop.set()
        self._thread.join()

        def all_there() -> bool:
            self.got += self._take()
            return set(self.sent) <= set(self.got)

        wait_until(
            all_there,
            seconds_max=60,
            what=f"{self.name}: all messages are consumed (errors: {self.errors[:3]})",
        )

    def _run(self) -> None:
        while not self.stop.is_set():
            body = b"%d" % (len(self.sent) + len(self.errors))
            try:
                error = self._send(body)
            except Exception as raised:
                error = str(raised)
            if error is None:
                self.sent.append(body)
            else:
                self.errors.append(f"{body!r}: {error}")
            time.sleep(PAUSE_SECONDS)


def metaq_stream(stack: ExitStack, driver: JavaDriver, zookeeper: str) -> Stream:
    topic = METAQ_TOPICS[0]
    factory = stack.enter_context(MetaqClient(driver, zookeeper, []).factory())
    producer = stack.enter_context(factory.producer([topic]))
    consumer = stack.enter_context(factory.consumer([topic], "handover"))

    def send(body: bytes) -> str | None:
        [result] = producer.send(topic, [Put(body)])
        return None if result.success else str(result.error)

    return Stream("metaq", send, lambda: [one.body for one in consumer.take(1, seconds_max=1)])


def rocketmq_stream(stack: ExitStack, driver: JavaDriver, version: int, namesrv: str) -> Stream:
    client = RocketmqClient(version, driver, namesrv)
    stack.callback(client.settle)
    topic = f"handover-{version}"
    admin = stack.enter_context(client.admin())
    wait_until(lambda: bool(admin.masters()), seconds_max=40, what="a master has a route")
    admin.create_topic(topic)
    producer = stack.enter_context(client.producer())
    wait_until(lambda: routed(producer.queues, topic), seconds_max=40, what="the topic's route")
    where = {"from": "CONSUME_FROM_FIRST_OFFSET"}
    consumer = stack.enter_context(client.push(topic, f"handover-{version}", **where))

    def send(body: bytes) -> str | None:
        [sent] = producer.send(topic, [Outgoing(body=body)])
        return None if sent.status == "SEND_OK" else sent.status

    return Stream(
        f"rocketmq {version}",
        send,
        lambda: [one.body for one in consumer.take(1, seconds_max=1)],
    )


def routed(queues: Callable[[str], Sequence[object]], topic: str) -> bool:
    try:
        return bool(queues(topic))
    except Exception:
        return False


def test_no_original_client_sees_an_error_when_the_master_stops_in_order(
    cluster: Mapping[str, object], drivers: dict[str, JavaDriver]
) -> None:
    for driver in drivers.values():
        driver.wait_ready()
    brokers = cluster["brokers"]
    assert isinstance(brokers, list)
    master = next(broker for broker in brokers if broker["role"] == "master")
    with ExitStack() as stack:
        namesrv = str(cluster["namesrv"])
        streams = [metaq_stream(stack, drivers["metaq"], str(cluster["zookeeper"]))]
        streams += [
            rocketmq_stream(stack, drivers[f"rocketmq{version}"], version, namesrv)
            for version in ROCKETMQ_VERSIONS
        ]
        for stream in streams:
            stack.callback(stream.stop.set)
        until_sent(streams, SENDS_AROUND)
        os.kill(master["pid"], signal.SIGTERM)
        until_sent(streams, 5 * SENDS_AROUND)
        for stream in streams:
            stream.finish()
            assert_undisturbed(stream)


def assert_undisturbed(stream: Stream) -> None:
    """Every message was taken without an error and consumed once.

    MetaQ's producer closes its connection to the former master as soon as the registry names the
    next one, also under a request of its own, whose answer it then waits for in vain. That is the
    one error there may be; the message itself is stored once or not at all.
    """
    own_doing = [error for error in stream.errors if OWN_TIMEOUT in error]
    assert [error for error in stream.errors if error not in own_doing] == [], stream.name
    assert len(own_doing) <= (stream.name == "metaq"), own_doing
    assert len(set(stream.got)) == len(stream.got), f"{stream.name}: once each"
    unknown = {error.split("'")[1].encode() for error in own_doing}
    assert set(stream.got) - set(stream.sent) <= unknown, stream.name


def until_sent(streams: Sequence[Stream], count: int) -> None:
    """Wait until every producer has sent so many messages more."""
    goals = [(stream, len(stream.sent) + count) for stream in streams]
    wait_until(
        lambda: all(len(stream.sent) >= goal for stream, goal in goals),
        seconds_max=60,
        what=f"{count} further messages of each producer",
    )
