"""A run: clients of both protocols work with a shard while one fault follows another."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from imago_testing.chaos.checker import check
from imago_testing.chaos.cluster.faults import done_to
from imago_testing.chaos.cluster.locating import Route, Tree
from imago_testing.chaos.cluster.report import ClusterReport
from imago_testing.chaos.connections import GROUP
from imago_testing.chaos.consumers import MetaqConsumer, RocketmqConsumer, read_whole
from imago_testing.chaos.history import History, Queue
from imago_testing.chaos.producers import MetaqProducer, Producer, RocketmqProducer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from imago_testing.chaos.cluster.shard import Shard
    from imago_testing.chaos.connections import Where
    from imago_testing.chaos.consumers import Consumer

LEVELS = ("replicated", "replicated-fsync")
"""One topic for each; what is acknowledged survives all that is done here."""
QUEUES_PER_TOPIC = 2
PRODUCERS_PER_PROTOCOL = 2
_IN_FLIGHT = (1, 8)
_PAUSE_SECONDS = 0.02
_PATIENCE_SECONDS = 6.0
_ACK_SECONDS_MAX = 90.0
_END_SECONDS_MAX = 180.0
_CREATED = {200, 201}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which faults, in which order; the same seed does the same, as far as time lets it."""

    seed: int
    faults: Sequence[str]
    calm_seconds: tuple[float, float] = (0.5, 2.0)
    """How long the load runs undisturbed before each fault."""


class Run:
    """The load and the faults. One history for all."""

    def __init__(self, plan: Plan, shard: Shard) -> None:
        self._plan, self._shard = plan, shard
        self._rng = random.Random(plan.seed)
        self._history = History()
        self._queues = [
            Queue(self._topic(level), n) for level in LEVELS for n in range(QUEUES_PER_TOPIC)
        ]
        self._tree = Tree(shard.zookeeper.connect)
        self._acks: list[float] = []
        self._acknowledged = asyncio.Event()
        self.report = ClusterReport(seed=plan.seed)

    async def play(self) -> ClusterReport:
        """Do it all; the report's violations are what is to be looked at."""
        began = time.monotonic()
        await asyncio.to_thread(self._set_up)
        try:
            async with self._load():
                for name in self._plan.faults:
                    await self._disturb(name)
            await self._read_all()
        finally:
            self._tree.stop()
        self.report.take(self._history, check(self._history), self._shard.exits)
        self.report.seconds = time.monotonic() - began
        return self.report

    def _set_up(self) -> None:
        self._shard.settled()
        leader = self._shard.leader()
        for level in LEVELS:
            topic = self._topic(level)
            body = {"queues": QUEUES_PER_TOPIC, "acknowledgement": level}
            code, told = leader.ask(f"/admin/v1/topics/{topic}", method="PUT", body=body)
            assert code in _CREATED, told
        code, told = leader.ask(f"/admin/v1/groups/{GROUP}", method="PUT", body={})
        assert code in _CREATED, told
        self._tree.start()

    def _topic(self, level: str) -> str:
        return f"chaos-{self._plan.seed}-{level}"

    def _producers(self) -> list[Producer]:
        made: list[Producer] = []
        kinds: list[tuple[type[Producer], Where]] = [
            (MetaqProducer, self._tree),
            (RocketmqProducer, self._route()),
        ]
        for kind, where in kinds * PRODUCERS_PER_PROTOCOL:
            number = len(made)
            made.append(
                kind(
                    number,
                    where,
                    self._queues,
                    self._history,
                    self._acked,
                    rng=random.Random(self._plan.seed * 1000 + number),
                    in_flight=_IN_FLIGHT[number // len(kinds) % len(_IN_FLIGHT)],
                    pause=_PAUSE_SECONDS,
                    patience=_PATIENCE_SECONDS,
                )
            )
        return made

    def _consumers(self) -> list[Consumer]:
        made: list[Consumer] = []
        for queue in self._queues:
            made.append(MetaqConsumer(self._tree, queue, self._history, tolerant=True))
            made.append(RocketmqConsumer(self._route(), queue, self._history, tolerant=True))
        return made

    def _route(self) -> Route:
        return Route(self._shard.members, self._queues[0].topic)

    def _acked(self) -> None:
        self._acks.append(time.monotonic())
        self._acknowledged.set()

    @asynccontextmanager
    async def _load(self) -> AsyncIterator[None]:
        producers, consumers = self._producers(), self._consumers()
        async with asyncio.TaskGroup() as group:
            producing = [group.create_task(each.run()) for each in producers]
            for consumer in consumers:
                group.create_task(consumer.run())
            yield
            for producer in producers:
                producer.stop()
            async with asyncio.timeout(_END_SECONDS_MAX):
                await asyncio.gather(*producing)
            for consumer in consumers:
                consumer.stop()
        self.report.refused = sum(each.refused for each in producers)

    async def _disturb(self, name: str) -> None:
        await self._next_acknowledgement()
        await asyncio.sleep(self._rng.uniform(*self._plan.calm_seconds))
        began = time.monotonic()
        async with done_to(self._shard, name, self._rng):
            pass
        await asyncio.to_thread(self._shard.settled)
        await self._next_acknowledgement()
        self.report.gap(name, self._longest_gap(began))
        print(f"{name}: {self.report.last_gap_ms} ms without an acknowledgement", flush=True)

    def _longest_gap(self, began: float) -> float:
        """Longest time without an acknowledgement since the fault began, in seconds."""
        times = [began, *(each for each in self._acks if each >= began)]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    async def _next_acknowledgement(self) -> None:
        self._acknowledged.clear()
        async with asyncio.timeout(_ACK_SECONDS_MAX):
            await self._acknowledged.wait()

    async def _read_all(self) -> None:
        leader = await asyncio.to_thread(self._shard.leader)

        async def metaq() -> tuple[str, int]:
            return leader.metaq

        async def rocketmq() -> tuple[str, int]:
            return leader.rocketmq

        self._history.final = await read_whole(metaq, rocketmq, self._queues)
