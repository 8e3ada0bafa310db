"""kill -9 of a broker in the midst of transactions: each ends as its producer said, once."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING

import pytest

from imago_testing.chaos.broker import ChaosBroker
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.transactions import COMMIT, ROLLBACK, Half, half_properties
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes]
LIVES, EACH = 6, 80


class Producer:
    """Begins transactions, and ends each of them until it hears that it has ended."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.halves: dict[str, Half] = {}
        self.outcomes: dict[str, int] = {}
        self.ended: set[str] = set()

    async def live(self, broker: ChaosBroker, life: int) -> None:
        """Go on until the broker is killed, which happens at some point of it."""
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await self._end_again(peer)
        await self._begin(peer, life)
        names = [name for name in self.halves if name not in self.ended]
        answers = await self._report(peer, names)
        heard = self.rng.randrange(len(answers))
        for name, number in answers[:heard]:
            await self._heard(peer, name, number)
        broker.kill()
        # What came before the end counts as heard.
        for name, number in answers[heard:]:
            with contextlib.suppress(ConnectionError):
                await self._heard(peer, name, number)
        await peer.close()

    async def _begin(self, peer: RemotingPeer, life: int) -> None:
        sent = {}
        for each in range(EACH):
            name = f"{life}-{each}"
            self.outcomes[name] = self.rng.choice([COMMIT, ROLLBACK])
            properties = half_properties(name)
            fields = {"a": "P", "b": "T", "c": "TBW102", "d": 4, "e": each % 4, "f": 4}
            more = {"g": 1, "h": 0, "i": properties, "j": 0}
            sent[name] = peer.send(310, {**fields, **more}, name.encode())
        for name, number in sent.items():
            answer = await peer.answer(number)
            assert answer.code == ResponseCode.SUCCESS
            self.halves[name] = Half(answer, name)

    async def _report(self, peer: RemotingPeer, names: list[str]) -> list[tuple[str, int]]:
        return [(name, self._say(peer, name)) for name in names for _ in range(2)]

    def _say(self, peer: RemotingPeer, name: str) -> int:
        header = self.halves[name].header(self.outcomes[name])
        return peer.send(RequestCode.END_TRANSACTION, header)

    async def _heard(self, peer: RemotingPeer, name: str, number: int) -> None:
        answer = await peer.answer(number)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self.ended.add(name)

    async def _end_again(self, peer: RemotingPeer) -> None:
        """Say everything again: what has ended, and what nobody knows of."""
        for name, number in await self._report(peer, list(self.halves)):
            await self._heard(peer, name, number)

    async def delivered(self, broker: ChaosBroker) -> list[str]:
        """End everything, then read the topic."""
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await self._end_again(peer)
        found = []
        for queue in range(4):
            offset = 0
            while batch := await peer.messages("T", offset, queueId=queue):
                found += [message.body.decode() for message in batch]
                offset = batch[-1].queue_offset + 1
        await peer.close()
        return found


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_transactions_survive_kills(tmp_path: Path, seed: int) -> None:
    broker, producer = ChaosBroker(tmp_path), Producer(seed)
    try:
        for life in range(LIVES):
            broker.start()
            broker.wait()
            asyncio.run(producer.live(broker, life))
        broker.start()
        broker.wait()
        told = asyncio.run(producer.delivered(broker))
    finally:
        broker.close()
    assert len(producer.halves) >= LIVES * EACH // 2
    expected = [name for name in producer.halves if producer.outcomes[name] == COMMIT]
    assert sorted(told) == sorted(expected)
