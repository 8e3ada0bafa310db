"""Everything the RocketMQ processors stand on, put together once by the broker's assembly."""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.service.clients import ClientRegistry
from imago_broker.service.delay import DelayService
from imago_broker.service.locks import QueueLocks
from imago_broker.service.pull_hold import PullHold
from imago_broker.service.resets import PendingResets
from imago_broker.service.sequencing import SequencedPuts
from imago_broker.service.traffic import Traffic
from imago_broker.service.versions import TableVersion
from imago_log.errors import StoreError
from imago_wire.remoting.message_ids import UniqueKeys

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from imago_broker.config.sections import RocketmqSection
    from imago_broker.core.budget import OutputBudget
    from imago_broker.model.topics import TopicConfig
    from imago_broker.ports import Clock, Coordinator
    from imago_broker.processors.rocketmq.exchange import Lane
    from imago_broker.service.groups import GroupService
    from imago_broker.service.messages import MessageService
    from imago_broker.service.offsets import ConsumerOffsets
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.topics import TopicService

logger = logging.getLogger(__name__)

SWEEP_MS = 5_000
MEMORY_RATIO = 0.4
"""Part of the machine's memory whose worth of newest records RocketMQ takes for cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqIdentity:
    """How this broker calls itself towards RocketMQ clients."""

    cluster: str
    broker_name: str
    host: str
    """Advertised to clients."""
    port: int

    @property
    def address(self) -> str:
        """What routes and answers name."""
        return f"{self.host}:{self.port}"


@dataclass(slots=True, kw_only=True)
class RocketmqServices:
    """The services, as `build_services` made them."""

    identity: RocketmqIdentity
    settings: RocketmqSection
    """Replaced as a whole when an administrator changes one: read it at each use."""
    messages: MessageService
    sequenced: SequencedPuts
    topics: TopicService
    offsets: ConsumerOffsets
    groups: GroupService
    clock: Clock
    coordinator: Coordinator
    serving_rules: ServingRules
    budget: OutputBudget
    """Of what the connections of all ports have not read yet."""
    clients: ClientRegistry
    locks: QueueLocks
    delay: DelayService
    hold: PullHold
    unique_keys: UniqueKeys
    resets: PendingResets = field(default_factory=PendingResets)
    traffic: Traffic = field(default_factory=Traffic)
    memory_bytes: int = 1 << 30
    """How far behind the log's end a record counts as still in memory."""
    started_ms: int = 0
    swept_ms: int = 0
    topic_version: TableVersion
    group_version: TableVersion
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    """Filled by the table: what the tools show as thread pools."""
    on_topic_made: list[Callable[[TopicConfig, str], None]] = field(default_factory=list)
    """Told each topic that a send has made, and its template; not groups' own."""
    on_settings: Callable[[RocketmqSection], None] | None = None
    """Told when a client changed settings, so that everybody shows the same."""

    @property
    def store_host(self) -> bytes:
        """This broker's address as it stands in records and message ids."""
        return self.messages.store.config.store_host

    def change_settings(self, settings: RocketmqSection) -> None:
        """Put changed settings in force; ValueError, and nothing done, where they cannot be."""
        if self.on_settings is not None:
            self.on_settings(settings)
        self.settings = settings

    def sweep(self) -> None:
        """Forget clients and locks that are over: call it every second or so."""
        now_ms = self.clock.monotonic_ms()
        if now_ms - self.swept_ms >= SWEEP_MS:
            self.swept_ms = now_ms
            self.clients.sweep(self.clock.epoch_ms())
            self.locks.sweep(now_ms=now_ms)
            if self.serving_rules.leads:
                self._save_locks()

    def _save_locks(self) -> None:
        try:
            self.locks.save(self.messages.store)
        except StoreError as error:
            # Locks that have ended are no harm in a log that takes nothing: the next sweep tries.
            logger.warning("locks_not_saved error=%s", error)


def build_services(
    *,
    identity: RocketmqIdentity,
    settings: RocketmqSection,
    messages: MessageService,
    topics: TopicService,
    offsets: ConsumerOffsets,
    groups: GroupService,
    clock: Clock,
    coordinator: Coordinator,
    serving_rules: ServingRules,
    budget: OutputBudget,
    loop: asyncio.AbstractEventLoop,
) -> RocketmqServices:
    """Make what only RocketMQ needs and connect it with what the broker has anyway.

    The delay service is not started: that happens once the broker may write.
    """
    hold = PullHold(loop, clock, held_max=settings.pull_holds_max)
    delay = DelayService(messages, topics, loop=loop, clock=clock, levels=settings.delay_levels)
    messages.on_arrival(hold.arrived)
    messages.on_arrival(delay.arrived)
    now_ms = clock.epoch_ms()
    topic_version, group_version = TableVersion(now_ms), TableVersion(now_ms)
    topics.on_change.append(lambda _name, _config: topic_version.bump(clock.epoch_ms()))
    topics.on_change.append(lambda name, _config: hold.topic_changed(name))
    return RocketmqServices(
        identity=identity,
        settings=settings,
        messages=messages,
        sequenced=SequencedPuts(messages),
        topics=topics,
        offsets=offsets,
        groups=groups,
        clock=clock,
        coordinator=coordinator,
        serving_rules=serving_rules,
        budget=budget,
        clients=ClientRegistry(),
        locks=QueueLocks(),
        delay=delay,
        hold=hold,
        unique_keys=UniqueKeys(
            messages.store.config.store_host[:-4], os.getpid(), secrets.randbits(32), clock.epoch_ms
        ),
        memory_bytes=int(_machine_memory() * MEMORY_RATIO),
        started_ms=now_ms,
        topic_version=topic_version,
        group_version=group_version,
    )


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
