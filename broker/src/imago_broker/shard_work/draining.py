"""Draining this shard: its topics are opened elsewhere, sealed here, and read out.

Wanted is what the registry says; this task of the shard's master compares it with what is, again
and again. So a drain goes on over restarts and failovers, topics that are made meanwhile leave
too, and to take it back is to say so in the registry.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.core.placing.moves import targets
from imago_broker.core.placing.placement import rooms
from imago_broker.errors import RequestError
from imago_broker.model import names
from imago_broker.model.registry.cluster import RegistryConnection, Role, shard_name
from imago_broker.model.topics.sealing import DRAIN, seal_of, takes_messages
from imago_broker.ports import CoordinatorError
from imago_broker.service.known_readers import SEEN
from imago_broker.shard_work import readers
from imago_broker.shard_work.calls import own_headers
from imago_broker.shard_work.errors import AdminError
from imago_broker.shard_work.opening import open_on
from imago_broker.shard_work.remaining import DrainProgress, measure, movable
from imago_log.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.model.registry.cluster import ClusterView
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.shard_work.remaining import ShardRemaining
    from imago_broker.shard_work.services import ShardServices

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
PAUSE_SHARE = 10
"""With very many topics a look takes its time: pauses are so many times longer."""
IDLE_SECONDS = 5.0
"""How soon a new master looks by itself, where nothing else tells it to."""
AT_ONCE = 8
"""Topics that are opened elsewhere at the same time."""


class Drainer:
    """Keeps this shard as the registry wants it: drained, or not."""

    def __init__(self, services: ShardServices) -> None:
        self._services = services
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._blocked = ""
        self._looked_at: tuple[int, bool] | None = None
        self._told: readers.Readers | None = None
        self.progress = DrainProgress()

    def start(self) -> None:
        """Look from now on."""
        self._services.topics.intake.close_when(self._recorded)
        self._services.coordinator.on_change(lambda _: self._wake.set())
        self._wake.set()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    def reconsider(self) -> None:
        """Look now, and close or open again what the registry says, though it says nothing new."""
        self._looked_at = None
        self.wake()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            clock = self._services.clock
            began_ms = clock.monotonic_ms()
            try:
                await self.look()
            except (AdminError, CoordinatorError, StoreError) as error:
                self._block(str(error))
            except Exception:
                # A mistake of ours must not end a drain without a word.
                logger.exception("drain_failed")
            if self._draining(self._services.coordinator.view()):
                spent_ms = clock.monotonic_ms() - began_ms
                await asyncio.sleep(max(LOOK_SECONDS, PAUSE_SHARE * spent_ms / 1000))
                self._wake.set()

    async def look(self) -> None:
        """Take one step towards what the registry wants, as far as it can be taken now."""
        services = self._services
        progress, intake = self.progress, services.topics.intake
        if not self._leads():
            progress.remaining = self._looked_at = None
            return
        view = services.coordinator.view()
        draining, recorded = self._draining(view), self._recorded()
        intake.cordoned = services.config.broker.shard in view.cordoned
        intake.leaving = draining
        now_at = (services.shard_epoch, draining or recorded)
        before, self._looked_at = self._looked_at, now_at
        if not draining:
            progress.remaining = None
            self._told = None
            services.offsets.readers.forget_seen()
            if before != now_at:
                self._close_or_take_back(recorded)
            return
        await self._leave()
        left = await self._measured()
        if recorded and not (left.done and await self._told_others(left)):
            await self._record(False)
        elif left.done and not recorded:
            # Measured once more, with the door shut: what is recorded then stays true.
            with intake.shut():
                left = await self._measured()
                if left.done and await self._told_others(left):
                    await self._record(True)

    async def _measured(self) -> ShardRemaining:
        services, blocked = self._services, self._blocked
        try:
            services.offsets.readers.add(SEEN, services.subscribed())
        except RequestError as error:
            blocked = blocked or f"{error}."
        left = self.progress.remaining = await measure(services, blocked)
        return left

    async def _told_others(self, left: ShardRemaining) -> bool:
        """Have other shards know who reads, before this one may go; False: one of them does not."""
        known = readers.here(self._services)
        if known != self._told:
            try:
                await readers.tell(self._services)
            except AdminError as error:
                self.progress.remaining = replace(left, blocked=str(error))
                return False
            self._told = known
        return True

    async def _record(self, drained: bool) -> None:
        if not self._leads():
            return  # it has stopped, or another leads: what was counted says nothing of the shard
        shard = self._services.config.broker.shard
        await self._services.marks.note_drained(shard, drained)
        logger.info("shard_drained shard=%d drained=%s", shard, drained)

    def _recorded(self) -> bool:
        """Whether the registry says that the shard is drained."""
        services = self._services
        return services.config.broker.shard in services.coordinator.view().drained

    def _leads(self) -> bool:
        own, view = self._services.coordinator.registered, self._services.coordinator.view()
        master = self._services.control.shard_status().role is Role.MASTER
        connected = self._services.coordinator.state is RegistryConnection.CONNECTED
        return own is not None and view.leads(own) and master and connected

    def _draining(self, view: ClusterView) -> bool:
        return self._services.config.broker.shard in view.draining

    def _close_or_take_back(self, recorded: bool) -> None:
        if recorded:  # by hand
            close_for_good(self._services)
            return
        topics = self._services.topics
        for config in topics.all():
            seal = seal_of(config)
            if seal is not None and seal.cause == DRAIN:
                topics.unseal(config.name)

    async def _leave(self) -> None:
        """Open elsewhere what takes messages here, then seal it."""
        topics = self._services.topics.all()
        waiting = [config for config in topics if movable(config) and takes_messages(config)]
        blocked = ""
        for start in range(0, len(waiting), AT_ONCE):
            part = waiting[start : start + AT_ONCE]
            done = await asyncio.gather(*map(self._leave_one, part))
            blocked = next(filter(None, done), blocked)
        self._block(blocked)

    async def _leave_one(self, config: TopicConfig) -> str:
        """Return why the topic could not leave; empty when it has."""
        services = self._services
        view, own = services.coordinator.view(), services.config.broker.shard
        try:
            if own not in view.staying and not _on_every_shard(services, config):
                await open_elsewhere(services, config, own_headers())
        except (AdminError, ValueError) as error:
            return f"{config.name}: {error}"
        if self._leads() and self._draining(services.coordinator.view()):
            until_ms = services.clock.epoch_ms() + services.config.broker.seal_linger_ms
            services.topics.seal(config.name, until_ms=until_ms, cause=DRAIN)
        return ""

    def _block(self, reason: str) -> None:
        if reason and reason != self._blocked:
            name = shard_name(self._services.config.broker.shard)
            logger.warning("drain_waits shard=%s reason=%s", name, reason)
        self._blocked = reason


def close_for_good(services: ShardServices) -> None:
    """Seal what every shard has, and nobody can move by name."""
    for config in services.topics.all():
        if _on_every_shard(services, config):
            services.topics.seal(config.name, until_ms=0, cause=DRAIN)


def _on_every_shard(services: ShardServices, config: TopicConfig) -> bool:
    return names.on_every_shard(config.name, services.topics.cluster)


async def open_elsewhere(
    services: ShardServices, config: TopicConfig, headers: Mapping[str, str]
) -> tuple[int, ...]:
    """Have a topic keep the number of shards that it has when it leaves this one.

    Returns the shards on which it was opened; none where it has enough. ValueError: no other shard
    takes topics. AdminError: one does not answer.
    """
    view, own = services.coordinator.view(), services.config.broker.shard
    free = rooms(view)
    shards = targets(free, writable(view, config.name, {r.shard for r in free}), own)
    for shard in shards:
        await open_on(services, shard, config, headers)
    return shards


def writable(view: ClusterView, topic: str, among: set[int]) -> set[int]:
    """Return the shards among these on which a topic takes messages."""
    placed = view.topics.get(topic)
    entries = placed.shards.items() if placed else ()
    return {n for n, queues in entries if n in among and queues.write and queues.perm & 2}
