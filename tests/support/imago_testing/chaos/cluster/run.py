"""A run: clients of both protocols work with a shard while one fault follows another."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_testing.chaos.checker import check
from imago_testing.chaos.cluster.backlog import read_from_behind
from imago_testing.chaos.cluster.ending import read_ending
from imago_testing.chaos.cluster.faults import done_to
from imago_testing.chaos.cluster.full_disks import note_forced_out
from imago_testing.chaos.cluster.intruders import intruders
from imago_testing.chaos.cluster.locating import Route, Tree
from imago_testing.chaos.cluster.meter import Meter
from imago_testing.chaos.cluster.pressure import waited_seconds
from imago_testing.chaos.cluster.report import ClusterReport
from imago_testing.chaos.cluster.sdk_workers import SdkWorker
from imago_testing.chaos.cluster.shard import ApartError
from imago_testing.chaos.connections import GROUP, ConnectionLostError, RefusedError
from imago_testing.chaos.consumers import MetaqConsumer, RocketmqConsumer
from imago_testing.chaos.credentials import OPEN
from imago_testing.chaos.history import History, Queue
from imago_testing.chaos.producers import MetaqProducer, Producer, RocketmqProducer
from imago_testing.peers.sdk_peer import HEADERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from imago_testing.chaos.cluster.intruders import Intruder
    from imago_testing.chaos.cluster.members import Member
    from imago_testing.chaos.cluster.shard import Shard
    from imago_testing.chaos.connections import Where
    from imago_testing.chaos.consumers import Consumer

LEVELS = ("replicated", "replicated-fsync")
"""One topic for each; what is acknowledged survives all that is done here."""
QUEUES_PER_TOPIC = 2
SDK = "sdk"
"""Stands for a level in the name of the topic that is read over gRPC."""
UNREAD = "chaos-unread"
"""A group that has read nothing: no disk is too full for what it has to read."""
PRODUCERS_PER_PROTOCOL = 2
_IN_FLIGHT = (1, 8)
_PATIENCE_SECONDS = 6.0
_ACK_SECONDS_MAX = 120.0
_END_SECONDS_MAX = 400.0
_LEAD_TRIES = 3
_OK = 200
_CREATED = {_OK, 201}
_UNREAD = (RefusedError, ConnectionLostError, OSError)
"""What a member may answer that cannot be read; TimeoutError is one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which faults, in which order; the same seed does the same, as far as time lets it."""

    seed: int
    faults: Sequence[str]
    calm_seconds: tuple[float, float] = (0.5, 2.0)
    """How long the load runs undisturbed before each fault, at least."""
    every_seconds: tuple[float, float] = (0.0, 0.0)
    """From the beginning of a fault to that of the next one, at least."""
    burst_bytes: int = 0
    """How much is acknowledged undisturbed before each fault, at least."""
    body_bytes: int | None = None
    """Mean of the bodies; most are of some hundred bytes without it."""
    rate_min: float = 0.0
    """Bytes a second that clients write between the faults, at least."""
    rate_max: float = 8e6


class Run:
    """The load and the faults. One history for all."""

    def __init__(self, plan: Plan, shard: Shard) -> None:
        self._plan, self._shard = plan, shard
        self._rng = random.Random(plan.seed)
        self._history = History()
        self._queues = [
            Queue(self._topic(level), n) for level in LEVELS for n in range(QUEUES_PER_TOPIC)
        ]
        self._tree = Tree(shard.zookeeper.connect, shard.closed)
        self._meter = Meter(plan.rate_max)
        self._began = time.monotonic()
        self._next_fault_at = 0.0
        self.report = ClusterReport(seed=plan.seed)

    async def play(self) -> ClusterReport:
        """Do it all; the report's violations are what is to be looked at."""
        await asyncio.to_thread(self._set_up)
        try:
            try:
                async with self._load():
                    await self._keep_metaq_files()
                    for name in self._plan.faults:
                        await self._disturb(name)
                await self._show_every_member()
            except* ApartError as errors:
                self._history.apart += [str(each) for each in errors.exceptions]
                await self._show_leader()
        finally:
            self._tree.stop()
        self._history.idle += self._shard.idle
        self._history.drains += self._shard.drains
        endings = self._history.endings
        if endings and not any(found for each in endings for found in each.light.values()):
            self._history.idle.append("no member showed a message in a light queue")
        self.report.take(self._history, check(self._history), self._shard.exits)
        self._shard.idle.clear()
        self._shard.drains.clear()
        self._shard.exits.clear()
        self.report.hold_against(self._plan.rate_min)
        self.report.seconds = time.monotonic() - self._began
        return self.report

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def _set_up(self) -> None:
        self._shard.settled()
        leader = self._shard.leader()
        for level in LEVELS:
            topic = self._topic(level)
            body = {"queues": QUEUES_PER_TOPIC, "acknowledgement": level}
            code, told = leader.ask(f"/admin/v1/topics/{topic}", method="PUT", body=body)
            assert code in _CREATED, told
        told_of = {"queues": 1, "acknowledgement": LEVELS[0]}
        path = f"/admin/v1/topics/{self._topic(SDK)}"
        code, told = leader.ask(path, method="PUT", body=told_of)
        assert code in _CREATED, told
        code, told = leader.ask(f"/admin/v1/groups/{GROUP}", method="PUT", body={})
        assert code in _CREATED, told
        code, told = leader.ask(f"/admin/v1/groups/{UNREAD}", method="PUT", body={})
        assert code in _CREATED, told
        for level in LEVELS:
            body = {"topic": self._topic(level), "to": {str(q): 0 for q in range(QUEUES_PER_TOPIC)}}
            code, told = leader.ask(f"/admin/v1/groups/{UNREAD}/reset", method="POST", body=body)
            assert code in _CREATED, told
        if self._shard.closed is not None:
            self._shard.closed.let_in(leader)
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
                    self._meter.acked,
                    rng=random.Random(self._plan.seed * 1000 + number),
                    light=True,
                    in_flight=_IN_FLIGHT[number // len(kinds) % len(_IN_FLIGHT)],
                    body_bytes=self._plan.body_bytes,
                    pause=self._meter.pause,
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

    def _sdk_worker(self) -> SdkWorker:
        closed = self._shard.closed
        topic = self._topic(SDK)
        return SdkWorker(
            self._route(),
            topic,
            f"{GROUP}-{topic}",
            self._history,
            (lambda: (HEADERS, None)) if closed is None else closed.shown_over_grpc,
        )

    def _note_sdk_end(self, worker: SdkWorker) -> None:
        _, told = self._shard.leader().ask(f"/admin/v1/topics/{self._topic(SDK)}")
        worker.note_end(told["queues"][0]["minOffset"])

    def _intruders(self) -> list[Intruder]:
        closed = self._shard.closed
        if closed is None:
            return []
        return intruders(closed, self._route(), self._tree, self._queues[0], self._history)

    def _route(self) -> Route:
        closed = self._shard.closed
        shown = OPEN if closed is None else closed.rocketmq
        return Route(self._shard.members, self._queues[0].topic, shown)

    @asynccontextmanager
    async def _load(self) -> AsyncIterator[None]:
        producers, consumers = self._producers(), self._consumers()
        async with asyncio.TaskGroup() as group:
            producing = [group.create_task(each.run()) for each in producers]
            for consumer in consumers:
                group.create_task(consumer.run())
            intruders = self._intruders()
            intruding = [group.create_task(each.run()) for each in intruders]
            worker = self._sdk_worker()
            working = group.create_task(worker.run())
            yield
            worker.stop()
            async with asyncio.timeout(_END_SECONDS_MAX):
                await working
            await asyncio.to_thread(self._note_sdk_end, worker)
            for task in intruding:
                task.cancel()
            self._history.idle += [
                f"{each.name} was never refused" for each in intruders if not each.refused
            ]
            for producer in producers:
                producer.stop()
            async with asyncio.timeout(_END_SECONDS_MAX):
                await asyncio.gather(*producing)
            for consumer in consumers:
                consumer.stop()
        self.report.refused = sum(each.refused for each in producers)

    async def _keep_metaq_files(self) -> None:
        """Have MetaQ's own files kept of the first topic; nobody needs those of the others."""
        topic = self._topic(LEVELS[0])

        def begun() -> bool:
            leader = self._shard.leader_or_none()
            if leader is None:
                return False
            code, told = leader.ask(f"/admin/v1/topics/{topic}")
            return code == _OK and bool(told["materialised"])

        await read_from_behind(self._tree, self._queues[0], begun)

    async def _disturb(self, name: str) -> None:
        await self._next_acknowledgement(name)
        await self._calm()
        self._say(name)
        self._shard.under = name
        began, waited = time.monotonic(), waited_seconds()
        self._next_fault_at = began + self._rng.uniform(*self._plan.every_seconds)
        async with done_to(self._shard, name, self._rng):
            pass
        whole_s = await self._whole(f"after {name}")
        await asyncio.to_thread(self._look_for_forced_out, name)
        await self._next_acknowledgement(name)
        busy = (waited_seconds() - waited) / (time.monotonic() - began)
        gap_s = self._meter.longest_gap(began)
        self.report.fault(name, gap_s=gap_s, whole_s=whole_s, busy=busy)
        self._say(f"{name}: {self.report.last}")

    def _look_for_forced_out(self, name: str) -> None:
        counts = {member.name: member.forced_out() for member in self._shard.members}
        note_forced_out(self._history, name, counts)

    async def _calm(self) -> None:
        """Let the load run undisturbed, and note how much it writes."""
        began = time.monotonic()
        seconds = max(
            self._rng.uniform(*self._plan.calm_seconds), self._next_fault_at - time.monotonic()
        )
        await asyncio.sleep(seconds)
        async with asyncio.timeout(_ACK_SECONDS_MAX):
            while self._meter.written(began) < self._plan.burst_bytes:
                await self._meter.next()
        self.report.calm(self._meter.written(began), time.monotonic() - began)

    async def _whole(self, when: str) -> float:
        """Wait until every member is in sync; return how many seconds that took."""
        try:
            return await asyncio.to_thread(self._shard.settled)
        except ApartError as error:
            raise ApartError(f"{when}: {error}") from None

    async def _next_acknowledgement(self, when: str) -> None:
        try:
            async with asyncio.timeout(_ACK_SECONDS_MAX):
                await self._meter.next()
        except TimeoutError:
            text = f"{when}: nothing acknowledged for {_ACK_SECONDS_MAX} s"
            raise ApartError(text) from None

    async def _show_every_member(self) -> None:
        """Have every member lead in turn, and read all from it."""
        await self._whole("in the end")
        leader = await asyncio.to_thread(self._shard.leader)
        for member in [leader, *(each for each in self._shard.members if each is not leader)]:
            if error := await self._lead_and_show(member):
                self._history.unled.append(f"{member.name}: {error}")

    async def _lead_and_show(self, member: Member) -> Exception | None:
        """Return why it could not be made leader and read, though it was tried again."""
        error: Exception | None = None
        for _ in range(_LEAD_TRIES):
            try:
                await self._whole(f"before {member.name} leads in the end")
                await asyncio.to_thread(self._shard.hand_over, member)
                await self._whole(f"with {member.name} as leader in the end")
                await self._show(member)
            except (*_UNREAD, ApartError) as failed:
                error = failed  # a session may end on a busy machine: another one leads then
            else:
                return None
        return error

    async def _show_leader(self) -> None:
        """Where not every member can lead, read what the one shows that does."""
        leader = await asyncio.to_thread(self._shard.leader_or_none)
        if leader is not None:
            with contextlib.suppress(*_UNREAD):
                await self._show(leader)

    async def _show(self, member: Member) -> None:
        async with asyncio.timeout(_END_SECONDS_MAX):
            light = sorted({name for names in self._history.light.values() for name in names})
            self._history.endings.append(await read_ending(member, self._queues, light))
        self._say(f"{member.name} was read")
