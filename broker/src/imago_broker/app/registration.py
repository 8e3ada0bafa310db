"""Keeping the registry up to date with what this broker is and which topics it has."""

from __future__ import annotations

import asyncio
import logging
import zlib
from typing import TYPE_CHECKING

from imago_broker.model import feature_level
from imago_broker.model.registry.cluster import BrokerRecord
from imago_broker.model.topics.placed import pattern_placements, placement
from imago_broker.ports import CoordinatorError
from imago_broker.replication.links.addresses import own_addresses
from imago_broker.replication.registry_view import log_position
from imago_log.disk.pressure import DiskLevel
from imago_log.lifecycle.retention import FORCED

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app.ports.listeners import Ports
    from imago_broker.config import BrokerConfig
    from imago_broker.model.registry.cluster import Role, TopicPlacement
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.ports import Registry
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore

NEW_TOPIC_SECONDS_MAX = 2.0
"""How long whoever made or changed a topic waits for the registry to have it: less than MetaQ's
producers wait for an answer (3 s). While the registry is away they are answered all the same."""

UNREGISTER_SECONDS_MAX = 2.0

logger = logging.getLogger(__name__)


def broker_record(
    config: BrokerConfig,
    *,
    uuid: str,
    host: str,
    ports: Ports,
    role: Role,
    store: MessageStore | None,
    problem: str,
) -> BrokerRecord:
    """Return how a broker announces itself; `store`: None for one that shares no shard."""
    epoch, end = (0, 0) if store is None else log_position(store)
    return BrokerRecord(
        shard=config.broker.shard,
        uuid=uuid,
        host=host,
        metaq=ports.metaq_port,
        rocketmq=ports.rocketmq_port,
        fast=ports.fast_port,
        replication=ports.replication.port or config.replication_port,
        admin=ports.admin_port,
        broker_name=config.broker_name,
        role=role,
        replica=config.broker.replica,
        slot=config.broker.replica,
        epoch_seen=0 if store is None else store.epoch_seen,
        problem=problem,
        unclean=store is not None and store.unclean,
        log_epoch=epoch,
        log_end=end,
        damaged=store is not None and store.damaged,
        full=store is not None and store.disk_level is DiskLevel.FULL,
        crowded=store is not None and store.disk_level in FORCED,
        zone=config.broker.zone,
        addresses=own_addresses(),
        client_host=config.broker.advertised_host,
        client_metaq=config.metaq.advertised_port,
        client_rocketmq=config.rocketmq.advertised_port,
        grpc=ports.grpc_port,
        client_grpc=config.rocketmq.grpc_advertised_port,
        listeners=tuple(each.address(ports.told_hosts.of(each)) for each in ports.entrances),
        metaq_listener=config.metaq.listener,
        feature_level=feature_level.NEWEST,
    )


class Registration:
    """Announces the broker and, from then on, each change of its topics.

    The registry repeats what it could not write, so an error here is only worth a line.
    """

    def __init__(self, registry: Registry, topics: TopicService, config: BrokerConfig) -> None:
        self._registry = registry
        self._topics = topics
        self._shard = config.broker.shard
        self._patterns = _patterns(config)
        self._tasks: set[asyncio.Task[None]] = set()
        self._publishing: dict[str, asyncio.Task[None]] = {}
        """The last write of each topic that is under way."""

    async def announce(self, record: BrokerRecord) -> None:
        """Register the broker and all its topics; then follow the topics' changes."""
        await self._registry.register(record)
        self._topics.on_change.append(self._topic_changed)
        placements = [
            placement(config, self._shard)
            for config in self._topics.all()
            if self._topics.is_public(config.name)
        ]
        await self._registry.publish_topics(placements, complete=True)
        if self._patterns:
            await self._registry.offer_patterns(self._patterns)

    async def _offer_patterns(self) -> None:
        try:
            await self._registry.offer_patterns(self._patterns)
        except CoordinatorError as error:
            logger.warning("patterns_not_published reason=%s", error)

    def changed(self, record: BrokerRecord, config: BrokerConfig, config_file: bytes) -> None:
        """Announce what has changed (zone, patterns, port); the registry repeats what it cannot."""
        if self._patterns != (patterns := _patterns(config)):
            self._patterns = patterns
            self._keep(asyncio.create_task(self._offer_patterns()))
        self._registry.tell_checksum(zlib.crc32(config_file))
        registered = self._registry.registered
        if registered is None:
            return
        if _announced(registered) == _announced(record):
            return
        self._keep(asyncio.create_task(self._register(record)))

    async def _register(self, record: BrokerRecord) -> None:
        try:
            await self._registry.register(record)
        except CoordinatorError as error:
            logger.warning("record_not_changed reason=%s", error)

    async def published(self, timeout_seconds: float | None = None) -> None:
        """Wait until topics that have changed are in the registry: for a while, it repeats."""
        if self._tasks:
            seconds = NEW_TOPIC_SECONDS_MAX if timeout_seconds is None else timeout_seconds
            await asyncio.wait(tuple(self._tasks), timeout=seconds)

    def when_published(self, topic: str, then: Callable[[], None]) -> bool:
        """Call `then` once the topic's last change is in the registry, or when that takes too long.

        False, and nothing will be called: no change of it is under way.
        """
        writing = self._publishing.get(topic)
        if writing is None:
            return False
        self._keep(asyncio.create_task(self._tell(topic, writing, then)))
        return True

    async def _tell(
        self, topic: str, writing: asyncio.Task[None], then: Callable[[], None]
    ) -> None:
        try:
            done, _ = await asyncio.wait((writing,), timeout=NEW_TOPIC_SECONDS_MAX)
            if not done:
                logger.warning(
                    "topic_not_published_in_time topic=%s seconds=%g: its first put is answered;"
                    " clients find the topic when the registry answers",
                    topic,
                    NEW_TOPIC_SECONDS_MAX,
                )
        finally:
            then()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def withdraw(self, linger_ms: Callable[[], int]) -> None:
        """Leave the registry, so that clients move before the port closes; serve them meanwhile."""
        if self._topic_changed in self._topics.on_change:
            self._topics.on_change.remove(self._topic_changed)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(UNREGISTER_SECONDS_MAX):
                await self._registry.unregister()
        except (TimeoutError, CoordinatorError) as error:
            logger.warning("unregister_failed reason=%s", error)
        await asyncio.sleep(linger_ms() / 1000)

    def _topic_changed(self, name: str, config: TopicConfig | None) -> None:
        task = self._publishing[name] = asyncio.create_task(self._publish(name, config))
        task.add_done_callback(lambda done: self._written(name, done))
        self._keep(task)

    def _written(self, name: str, task: asyncio.Task[None]) -> None:
        if self._publishing.get(name) is task:
            del self._publishing[name]

    async def _publish(self, name: str, config: TopicConfig | None) -> None:
        try:
            if config is None or not self._topics.is_public(name):
                await self._registry.remove_topic(name)
            else:
                await self._registry.publish_topic(placement(config, self._shard))
        except CoordinatorError as error:
            logger.warning("topic_not_published topic=%s reason=%s", name, error)


def _announced(record: BrokerRecord) -> tuple[object, ...]:
    """Return what may change while a broker is registered."""
    return (record.zone, record.replication, record.listeners)


def _patterns(config: BrokerConfig) -> list[TopicPlacement]:
    """Return the patterns of topics as MetaQ's clients see them."""
    queues = config.metaq.default_partitions
    return pattern_placements(config.patterns, queues=queues, shard=config.broker.shard)
