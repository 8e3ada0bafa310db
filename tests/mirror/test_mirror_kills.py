"""kill -9 of the mirror and of both masters while both protocols send: once, and in order."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from imago_client import Message, ProducerConfig
from imago_client.blocking import Client
from imago_client.blocking.metaq import MetaqClient
from imago_client.errors import ClientError
from imago_testing.clusters.mirrors import mirrored
from imago_testing.processes.servers import wait_until
from imago_testing.searching import seldom

if TYPE_CHECKING:
    from imago_testing.clusters.mirrors import MirrorProcess, Pair
    from imago_testing.processes.up import Up

pytestmark = pytest.mark.processes
KILLS, QUEUES, PACE_S = 6, 2, 0.002
SECONDS_MAX = 300


class Senders:
    """Producers of both protocols, without retries, who note what was acknowledged."""

    def __init__(self, running: Up, topic: str) -> None:
        self._running, self._topic = running, topic
        self.acked: list[bytes] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._rocketmq, self._texts)]

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _rocketmq(self) -> None:
        with Client(self._running.ready["namesrv"]) as client:
            producer = client.producer(ProducerConfig(retries_max=0))
            self._send(lambda body: producer.send(Message(self._topic, body)), b"rocketmq")

    def _texts(self) -> None:
        where = ",".join(each["metaq"] for each in self._running.ready["brokers"])
        with MetaqClient(where) as client:
            self._send(lambda body: client.send(self._topic, body), b"metaq")

    def _send(self, send: Any, name: bytes) -> None:
        number = 0
        while not self._stop.wait(PACE_S):
            body = b"%b %d" % (name, number)
            number += 1
            with suppress(ClientError):
                send(body)
                self.acked.append(body)


def kill_master(running: Up) -> None:
    """Kill the broker's process, without a word; `imago up` starts another one."""
    for child in running.children():
        with suppress(psutil.Error):
            if "broker" in child.cmdline():
                child.kill()
                child.wait(60)
                return
    raise AssertionError("no broker's process")


def stored(client: Client, topic: str) -> dict[tuple[str, int], list[tuple[bytes, Any]]]:
    """Return by queue each message's body, and where a copy came from."""
    consumer = client.pull_consumer("checker")
    found: dict[tuple[str, int], list[tuple[bytes, Any]]] = {}
    for queue in consumer.queues(topic):
        at, end = consumer.min_offset(queue), consumer.max_offset(queue)
        here = found[queue.shard, queue.queue_id] = []
        while at < end:
            pulled = consumer.pull(queue, at, bulk_bytes=1 << 20, messages_max=1000)
            here += [(each.body, each.properties.get("IMAGO_ORIGIN")) for each in pulled.messages()]
            at = pulled.next_offset
    return found


def counts(client: Client, topic: str) -> dict[tuple[str, int], int]:
    with suppress(ClientError):
        consumer = client.pull_consumer("checker")
        return {
            (queue.shard, queue.queue_id): consumer.max_offset(queue)
            for queue in consumer.queues(topic)
        }
    return {}


def strike(rng: Random, pair: Pair, mirror: MirrorProcess) -> str:
    victim = rng.choice(("mirror", "source", "target"))
    if victim == "mirror":
        mirror.kill()
        mirror.start()
    else:
        kill_master(pair.a if victim == "source" else pair.b)
    return victim


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", seldom(range(8)))
def test_whoever_is_killed_each_message_is_at_the_target_once_and_in_order(
    pair: Pair, seed: int
) -> None:
    rng, topic = Random(f"mirror {seed}"), f"kills-{seed}"
    with Client(pair.names[0]) as a, Client(pair.names[1]) as b:
        a.admin.create_topic(topic, queues=QUEUES)
        with mirrored(pair.folder, pair.names, topic, topics=f'["{topic}"]') as mirror:
            wait_until(
                lambda: bool(mirror.status().get("begun")), what="begun", seconds_max=SECONDS_MAX
            )
            with Senders(pair.a, topic) as senders:
                struck = []
                for _ in range(KILLS):
                    time.sleep(rng.uniform(0.2, 2.5))
                    struck.append(strike(rng, pair, mirror))
                before = len(senders.acked)
                wait_until(
                    lambda: len(senders.acked) > before + 50,
                    what="sending again",
                    seconds_max=SECONDS_MAX,
                )
            wait_until(
                lambda: bool(counts(a, topic)) and counts(a, topic) == counts(b, topic),
                what=f"all copied after {struck}: {mirror.status()}",
                seconds_max=SECONDS_MAX,
            )
        source, target = stored(a, topic), stored(b, topic)
        for queue, messages in source.items():
            copies = target[queue]
            assert [body for body, _ in copies] == [body for body, _ in messages], struck
            offsets = [int(str(origin).rpartition("/")[2]) for _, origin in copies]
            assert offsets == list(range(len(messages))), struck
        there = [body for messages in target.values() for body, _ in messages]
        assert len(set(there)) == len(there)
        assert set(senders.acked) <= set(there), "acknowledged at the source, and not at the target"
