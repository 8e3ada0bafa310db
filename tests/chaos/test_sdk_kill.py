"""kill -9 of a broker while SDKs send and consume: ordinary messages, ordered ones, lite topics.

What was answered is not lost, what is acknowledged never comes again, and order holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_testing.chaos.broker import ChaosBroker
from imago_testing.peers.sdk_calls import asks, consumer, message, named, sends, telemetry
from imago_testing.peers.sdk_peer import HEADERS, SdkPeer
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import make

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.processes]
LIVES, EACH = 4, 20
KINDS: Final = {"plain": "NORMAL", "steps": "FIFO", "chats": "LITE"}
SIMPLE, LITE_SIMPLE, ALL = 3, 6, 2
SECONDS_MAX = 100.0


class Worker:
    """A producer and a simple consumer of one topic, over as many lives as its broker has."""

    def __init__(self, topic: str, seed: int) -> None:
        self.topic, self.rng = topic, Random(f"{topic} {seed}")
        self.lite = KINDS[topic] == "LITE"
        self.headers: Mapping[str, str] = HEADERS | {"x-mq-client-id": topic}
        self.sent: list[str] = []
        self.seen: list[str] = []
        """Each message when it came first."""
        self.done: set[str] = set()
        self.again: list[str] = []
        """What came after its acknowledgement was answered."""
        self.asked: set[str] = set()
        """What a kill took the answer of its acknowledgement from: it may come again, or not."""

    async def live(self, port: int, life: int, kill: asyncio.Event, count: int) -> None:
        """Send and consume until the broker is gone; ask for that at some point of it."""
        peer = await self._begun(port)
        with contextlib.suppress(ConnectionError):
            for number in range(count):
                await self._send(peer, f"{life:02}-{number:03}")
                if number % 3 == 2:
                    await self._consume(peer)
                if number == count // 2 and self.rng.random() < 0.7:
                    kill.set()
        kill.set()
        await peer.close()

    async def end(self, port: int) -> None:
        """Consume until everything that was sent is acknowledged."""
        peer = await self._begun(port)
        end = time.monotonic() + SECONDS_MAX
        while lacks := set(self.sent) - self.done - self.asked:
            assert time.monotonic() < end, sorted(lacks)
            await self._consume(peer)
        await peer.close()

    async def _begun(self, port: int) -> SdkPeer:
        peer = await SdkPeer.connect(port)
        kind = LITE_SIMPLE if self.lite else SIMPLE
        await telemetry(peer, consumer(self.topic, self.topic, kind=kind), self.headers)
        if self.lite:
            told = make(
                "SyncLiteSubscriptionRequest",
                action=ALL,
                topic=named(self.topic),
                group=named(self.topic),
                lite_topic_set=["ann", "bob"],
            )
            answer = await peer.call("SyncLiteSubscription", told, self.headers)
            assert answer.status.code == SdkCode.OK, answer
        return peer

    async def _send(self, peer: SdkPeer, name: str) -> None:
        told: dict[str, Any] = {}
        if KINDS[self.topic] == "FIFO":
            told["message_group"] = "one"
        elif self.lite:
            told["lite_topic"] = self.rng.choice(("ann", "bob"))
        made = message(self.topic, name.encode(), message_id=name, **told)
        answer = await peer.call("SendMessage", sends(made), self.headers)
        assert answer.status.code == SdkCode.OK, answer
        self.sent.append(name)

    async def _consume(self, peer: SdkPeer) -> None:
        request = asks(self.topic, self.topic, batch_size=8, invisible_ms=10_000)
        number = peer.start("ReceiveMessage", request, self.headers)
        answers = await peer.answers(number, "ReceiveMessageResponse")
        for one in [answer.message for answer in answers[1:-1]]:
            system = one.system_properties
            if system.message_id in self.done:
                self.again.append(system.message_id)
            if system.message_id not in self.seen:
                self.seen.append(system.message_id)
            entry = make(
                "AckMessageEntry",
                message_id=system.message_id,
                receipt_handle=system.receipt_handle,
                lite_topic=system.lite_topic,
            )
            ack = make(
                "AckMessageRequest",
                group=named(self.topic),
                topic=named(self.topic),
                entries=[entry],
            )
            self.asked.add(system.message_id)
            answer = await peer.call("AckMessage", ack, self.headers)
            self.asked.discard(system.message_id)
            if answer.status.code == SdkCode.OK:
                self.done.add(system.message_id)


async def lived(broker: ChaosBroker, workers: Iterable[Worker], life: int) -> None:
    kill = asyncio.Event()
    running = [
        asyncio.create_task(each.live(broker.grpc_port, life, kill, EACH)) for each in workers
    ]
    await kill.wait()
    await asyncio.to_thread(broker.kill)
    await asyncio.gather(*running)


async def ended(broker: ChaosBroker, workers: Iterable[Worker]) -> None:
    await asyncio.gather(*(each.end(broker.grpc_port) for each in workers))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_what_sdks_send_and_acknowledge_survives_kills(tmp_path: Path, seed: int) -> None:
    broker, workers = ChaosBroker(tmp_path), [Worker(topic, seed) for topic in KINDS]
    try:
        for life in range(LIVES):
            broker.start()
            broker.wait()
            if not life:
                for topic, kind in KINDS.items():
                    told = {"queues": 2, "attributes": {"message.type": kind}}
                    broker.put(f"topics/{topic}", told)
                broker.put("groups/steps", {"consume_message_orderly": True})
            asyncio.run(lived(broker, workers, life))
        broker.start()
        broker.wait()
        asyncio.run(ended(broker, workers))
    finally:
        broker.close()
    for each in workers:
        assert len(each.sent) >= LIVES, each.topic
        assert each.again == [], each.topic
        assert each.asked.union(each.done).issuperset(each.sent), each.topic
    steps = [each for worker in workers if worker.topic == "steps" for each in worker.seen]
    assert steps == sorted(steps)
