"""A run: producers and consumers of both protocols, and a broker that is killed again and again."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_testing.chaos.broker import ChaosBroker
from imago_testing.chaos.checker import check
from imago_testing.chaos.connections import GROUP, fixed
from imago_testing.chaos.consumers import MetaqConsumer, RocketmqConsumer, read_whole
from imago_testing.chaos.history import History, Queue
from imago_testing.chaos.producers import MetaqProducer, Producer, RocketmqProducer
from imago_testing.chaos.report import Report
from imago_testing.processes.servers import accepts, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from imago_testing.chaos.connections import Where
    from imago_testing.chaos.consumers import Consumer

TOPICS = {"chaos-memory": "leader", "chaos-disk": "leader-fsync"}
"""Topic to the level at which its messages are acknowledged."""
QUEUES_PER_TOPIC = 3
PRODUCERS_PER_PROTOCOL = 3
IN_FLIGHT = (1, 8, 32)
"""Requests that the producers of each protocol keep under way."""
_START_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.01
_END_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is done to the broker. The same seed does the same, as far as time lets it."""

    seed: int
    kills_max: int
    seconds_max: float
    """No kill begins after this."""
    load_seconds: tuple[float, float] = (0.1, 1.2)
    """How long the load runs between the first answer and the next kill."""
    start_kill_share: float = 0.2
    """Kills that come while the broker starts, so while it recovers."""
    pause: float = 0.0
    """Between two sends of a producer, in seconds: keeps long runs in bounds."""


class Run:
    """The load and the kills. One history for all."""

    def __init__(self, plan: Plan, broker: ChaosBroker) -> None:
        self._plan = plan
        self._broker = broker
        self._rng = random.Random(plan.seed)
        self._history = History()
        self._queues = [Queue(topic, n) for topic in TOPICS for n in range(QUEUES_PER_TOPIC)]
        self._acked = asyncio.Event()
        self._report = Report([plan.seed])
        self._producers = self._make_producers()
        self._consumers = self._make_consumers()

    def _make_producers(self) -> list[Producer]:
        made: list[Producer] = []
        kinds: list[tuple[type[Producer], Where]] = [
            (MetaqProducer, fixed(self._broker.metaq_port)),
            (RocketmqProducer, fixed(self._broker.rocketmq_port)),
        ]
        for kind, where in kinds * PRODUCERS_PER_PROTOCOL:
            number = len(made)
            rng = random.Random(self._plan.seed * 1000 + number)
            args = (number, where, self._queues, self._history, lambda _: self._acked.set())
            in_flight = IN_FLIGHT[number // len(kinds) % len(IN_FLIGHT)]
            made.append(kind(*args, rng=rng, in_flight=in_flight, pause=lambda: self._plan.pause))
        return made

    def _make_consumers(self) -> list[Consumer]:
        made: list[Consumer] = []
        for queue in self._queues:
            made.append(MetaqConsumer(fixed(self._broker.metaq_port), queue, self._history))
            made.append(RocketmqConsumer(fixed(self._broker.rocketmq_port), queue, self._history))
        return made

    async def play(self) -> tuple[Report, History]:
        """Do it all; the report's violations are what is to be looked at."""
        began = time.monotonic()
        await self._set_up()
        async with self._load():
            while (
                self._report.kills < self._plan.kills_max
                and time.monotonic() - began < self._plan.seconds_max
            ):
                await self._kill_once()
            await self._answered()
        self._report.refused = sum(each.refused for each in self._producers)
        await self._read_all()
        self._report.count(self._history)
        self._report.violations = check(self._history)
        await self._check_after_stop()
        self._report.seconds = time.monotonic() - began
        return self._report, self._history

    async def _set_up(self) -> None:
        self._broker.start()
        await asyncio.to_thread(self._broker.wait)
        for topic, level in TOPICS.items():
            body = {"queues": QUEUES_PER_TOPIC, "acknowledgement": level}
            await asyncio.to_thread(self._broker.put, f"topics/{topic}", body)
        await asyncio.to_thread(self._broker.put, f"groups/{GROUP}", {})

    @asynccontextmanager
    async def _load(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            producing = [group.create_task(each.run()) for each in self._producers]
            for consumer in self._consumers:
                group.create_task(consumer.run())
            yield
            for producer in self._producers:
                producer.stop()
            async with asyncio.timeout(_END_SECONDS_MAX):
                await asyncio.gather(*producing)
            for consumer in self._consumers:
                consumer.stop()

    async def _kill_once(self) -> None:
        """Let the load run for a while, kill the broker, start it, wait for the first answer."""
        await asyncio.sleep(self._rng.uniform(*self._plan.load_seconds))
        killed_at = time.monotonic()
        self._kill()
        while self._rng.random() < self._plan.start_kill_share:
            await asyncio.sleep(self._rng.uniform(0.05, 0.8))
            self._kill()
        await self._answered()
        self._report.unavailable_ms.append(int((time.monotonic() - killed_at) * 1000))

    def _kill(self) -> None:
        assert self._broker.alive, f"the broker ended by itself:\n{self._broker.log_tail()}"
        self._broker.kill()
        self._report.kills += 1
        self._broker.start()

    async def _answered(self) -> None:
        """Wait for an acknowledgement of the process that runs now."""
        # Answers of the process before it are all read by the time this one listens.
        await self._until(lambda: accepts(self._broker.metaq_port))
        self._acked.clear()
        await self._until(self._acked.is_set)

    async def _until(self, condition: Callable[[], bool]) -> None:
        def over() -> bool:
            return condition() or not self._broker.alive

        what = "the broker answers after a start"
        await asyncio.to_thread(
            wait_until, over, seconds_max=_START_SECONDS_MAX, what=what, poll=_POLL_SECONDS
        )
        assert self._broker.alive, f"the broker ended by itself:\n{self._broker.log_tail()}"

    async def _read_all(self) -> None:
        ports = fixed(self._broker.metaq_port), fixed(self._broker.rocketmq_port)
        self._history.final = await read_whole(*ports, self._queues)

    async def _check_after_stop(self) -> None:
        """Stop in order; look at the files; start again: everything is as it was."""
        before = dict(self._history.final)
        code = await asyncio.to_thread(self._broker.stop)
        assert code == 0, f"exit code {code}:\n{self._broker.log_tail()}"
        if damage := await asyncio.to_thread(self._broker.damage):
            self._report.damage.append(damage)
        self._broker.start()
        await asyncio.to_thread(self._broker.wait)
        await self._read_all()
        assert self._history.final == before, "a stop in order changed what is stored"
        await asyncio.to_thread(self._broker.stop)


async def play(plan: Plan, folder: Path) -> tuple[Report, History]:
    """Run the plan in the folder; no process is left behind."""
    broker = ChaosBroker(folder)
    try:
        return await Run(plan, broker).play()
    finally:
        broker.close()
