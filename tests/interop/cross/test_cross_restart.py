"""A broker is killed and started again: the original clients go on by themselves."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.interop.metaq import MetaqClient, MetaqConsumer, MetaqProducer, Put
from imago_testing.interop.rocketmq import Outgoing, Producer, PushConsumer, RocketmqClient
from imago_testing.interop.targets import METAQ_TOPICS, imago_up
from imago_testing.java.driver import DriverError, JavaDriver
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.interop,
    pytest.mark.shows("killed", clients=("metaq", "rocketmq5")),
]
TOPIC = METAQ_TOPICS[0]
RECOVERY_SECONDS_MAX = 90


class Sender:
    """Sends numbered messages; notes which of them were acknowledged."""

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        self._send = send
        self._number = 0
        self.acked: set[bytes] = set()

    def send(self) -> bool:
        """Send the next message; whether it was acknowledged."""
        body = f"{self._number}".encode()
        self._number += 1
        try:
            sent = self._send(body)
        except DriverError:
            return False
        if sent:
            self.acked.add(body)
        return sent


def through_metaq(producer: MetaqProducer) -> Sender:
    return Sender(lambda body: all(r.success for r in producer.send(TOPIC, [Put(b"m" + body)])))


def through_rocketmq(producer: Producer) -> Sender:
    def send(body: bytes) -> bool:
        return all(
            r.status == "SEND_OK" for r in producer.send(TOPIC, [Outgoing(body=b"r" + body)])
        )

    return Sender(send)


@pytest.mark.full
def test_clients_of_both_protocols_go_on_after_a_broker_was_killed(
    drivers: dict[str, JavaDriver], tmp_path: Path
) -> None:
    with imago_up(tmp_path, shards=1) as ready:
        brokers: Any = ready["brokers"]
        metaq = MetaqClient(
            drivers["metaq"].wait_ready(),
            str(ready["zookeeper"]),
            [f"meta://{brokers[0]['metaq']}"],
        )
        rocketmq = RocketmqClient(5, drivers["rocketmq5"].wait_ready(), str(ready["namesrv"]))
        with (
            metaq.factory() as factory,
            factory.producer([TOPIC]) as metaq_producer,
            factory.consumer([TOPIC], "survivors") as metaq_consumer,
            rocketmq.producer() as rocketmq_producer,
            rocketmq.push(TOPIC, "survivors") as rocketmq_consumer,
        ):
            senders = [through_metaq(metaq_producer), through_rocketmq(rocketmq_producer)]
            for sender in senders:
                for _ in range(20):
                    assert sender.send()
            os.kill(brokers[0]["pid"], signal.SIGKILL)
            for sender in senders:
                wait_until(
                    sender.send, seconds_max=RECOVERY_SECONDS_MAX, what="an answer after the kill"
                )
                for _ in range(20):
                    assert sender.send()
            wanted = {b"m" + body for body in senders[0].acked}
            wanted |= {b"r" + body for body in senders[1].acked}
            wait_for_all(metaq_consumer, wanted)
            wait_for_all(rocketmq_consumer, wanted)
        rocketmq.settle()


def wait_for_all(consumer: MetaqConsumer | PushConsumer, wanted: set[bytes]) -> None:
    """Wait until everything has reached the consumer; some of it may come twice."""
    found: set[bytes] = set()

    def all_there() -> bool:
        found.update(each.body for each in consumer.take(0, seconds_max=0))
        return wanted <= found

    what = f"{type(consumer).__name__} gets all {len(wanted)} messages"
    wait_until(all_there, seconds_max=RECOVERY_SECONDS_MAX, what=what)
