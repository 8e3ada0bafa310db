"""kill -9 of a broker while consumers give messages back: each is tried again, then a dead letter.

What was confirmed is not lost. A consumer that heard nothing gives back again, so a message may be
there as often as it was given back, and no more often.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from imago_testing.chaos.broker import ChaosBroker
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from imago_wire.records.record import StoredMessage

pytestmark = [pytest.mark.processes]
LIVES, EACH, TRIES_MAX = 5, 30, 2
GROUP, RETRY, DEAD = "readers", "%RETRY%readers", "%DLQ%readers"
SECONDS_MAX = 100.0

Try = tuple[str, int]
"""A message, and how often it was tried before."""


class Consumer:
    """Fails with every message that it gets, and gives it back until that is confirmed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.sent: set[str] = set()
        self.asked: Counter[Try] = Counter()
        """How often each try was given back."""
        self.confirmed: set[Try] = set()

    async def live(self, broker: ChaosBroker, life: int) -> None:
        """Send, read and give back until the broker is killed, at some point of it."""
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        names = [f"{life}-{each}" for each in range(EACH)]
        for name in names:
            answer = await peer.put("T", name.encode())
            assert answer.code == ResponseCode.SUCCESS
        self.sent.update(names)
        for _ in range(self.rng.randrange(1, 4)):  # levels come due, and copies are delivered
            await self.give_back_all(peer)
            await asyncio.sleep(self.rng.uniform(0.2, 1.0))
        asked = await self._give_back(peer)
        heard = self.rng.randrange(len(asked) + 1)
        await self._hear(peer, asked[:heard])
        broker.kill()
        # What came before the end counts as heard.
        with contextlib.suppress(ConnectionError):
            await self._hear(peer, asked[heard:])
        await peer.close()

    async def give_back_all(self, peer: RemotingPeer) -> None:
        """Give back what is there, and hear that it was taken."""
        await self._hear(peer, await self._give_back(peer))

    async def _give_back(self, peer: RemotingPeer) -> list[tuple[Try, int]]:
        tried = [*await every(peer, "T"), *await every(peer, RETRY)]
        asked = []
        for message in tried:
            one = try_of(message)
            if one in self.confirmed:
                continue
            self.asked[one] += 1
            ext = {
                "offset": message.physical_offset,
                "group": GROUP,
                "delayLevel": 1,
                "originTopic": message.topic,
                "maxReconsumeTimes": TRIES_MAX,
            }
            asked.append((one, peer.send(RequestCode.CONSUMER_SEND_MSG_BACK, ext)))
        return asked

    async def _hear(self, peer: RemotingPeer, asked: Iterable[tuple[Try, int]]) -> None:
        for one, number in asked:
            answer = await peer.answer(number)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            self.confirmed.add(one)

    async def end(self, broker: ChaosBroker) -> tuple[Counter[Try], Counter[Try]]:
        """Go on until all are dead letters; return what stands in the retry topic and with them."""
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        end = time.monotonic() + SECONDS_MAX
        while {name for name, _ in await tries(peer, DEAD)} != self.sent:
            assert time.monotonic() < end, "messages that were given back are not there"
            await self.give_back_all(peer)
            await asyncio.sleep(0.3)
        found = await tries(peer, RETRY), await tries(peer, DEAD)
        await peer.close()
        return found


def try_of(message: StoredMessage) -> Try:
    return message.body.decode(), message.reconsume_times


async def tries(peer: RemotingPeer, topic: str) -> Counter[Try]:
    return Counter(try_of(message) for message in await every(peer, topic))


async def every(peer: RemotingPeer, topic: str) -> list[StoredMessage]:
    """Read a topic from its start to its end."""
    found: list[StoredMessage] = []
    while batch := await peer.messages(topic, len(found), consumerGroup=GROUP, imagoBatch="true"):
        found += batch
    return found


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_messages_that_were_given_back_survive_kills(tmp_path: Path, seed: int) -> None:
    broker, consumer = ChaosBroker(tmp_path), Consumer(seed)
    try:
        for life in range(LIVES):
            broker.start()
            broker.wait()
            asyncio.run(consumer.live(broker, life))
        broker.start()
        broker.wait()
        retried, dead = asyncio.run(consumer.end(broker))
    finally:
        broker.close()
    assert len(consumer.sent) == LIVES * EACH
    copies = retried + dead
    for name, before in consumer.asked:
        count = copies[name, before + 1]
        assert count >= ((name, before) in consumer.confirmed), f"{name} is lost at {before + 1}"
        assert count <= consumer.asked[name, before], f"{name} is there {count} times"
    assert {tried for _, tried in retried} == {1, 2}
    assert {tried for _, tried in dead} == {TRIES_MAX + 1}
