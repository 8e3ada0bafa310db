"""The services that stand on the store and serve both protocols, made and changed together."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.app.kept_settings.declared_topics import DeclaredTopics
from imago_broker.config.live import LiveSettings
from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.model.topics.attributes import lite_minutes
from imago_broker.service.access.access import AccessService
from imago_broker.service.access.throttling import QuotaService
from imago_broker.service.groups.groups import KIND as GROUP_KIND
from imago_broker.service.groups.groups import GroupService
from imago_broker.service.groups.offsets import KIND as OFFSET_KIND
from imago_broker.service.groups.offsets import ConsumerOffsets
from imago_broker.service.metaq_transactions.service import MetaqTransactions
from imago_broker.service.puts.messages import MessageService
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.topics.lingering import Lingering
from imago_broker.service.topics.topics import TopicService
from imago_log.errors import DiskFullError, StoreError
from imago_log.metadata.changes import TOPIC_KIND

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from imago_broker.config import BrokerConfig
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.ports import Clock
    from imago_broker.service.puts.gate import ShardGate
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)


class CoreServices:
    """Messages, topics, groups, offsets and users of one store."""

    def __init__(
        self,
        store: MessageStore,
        config: BrokerConfig,
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        gate: ShardGate | None = None,
    ) -> None:
        """Make them; the topics that the configuration declares are not made yet."""
        self.messages = MessageService(
            store,
            loop=loop,
            clock=clock,
            level_of=self._level_of,
            timeout_ms=config.acknowledgement.timeout_ms,
            waiting_bytes_max=config.acknowledgement.in_flight_bytes_max,
            gate=gate,
        )
        self.topics = TopicService(
            store,
            default_level=Acknowledgement(config.acknowledgement_level),
            topics_max=config.limits.topics_max,
            auto_create_enabled=config.rocketmq.auto_create_topic,
            default_queues=config.rocketmq.default_queues,
            before_change=self.messages.flush_turn,
            cluster=config.broker.cluster,
            light=self.messages.light,
        )
        self.declared = DeclaredTopics(store, self.topics, Path(config.broker.data_dir))
        self.groups = GroupService(
            store,
            auto_create_enabled=config.rocketmq.auto_create_group,
            groups_max=config.limits.groups_max,
        )
        self.offsets = ConsumerOffsets(store, loop=loop, keeps_light=self.messages.light.keeps)
        self.access = AccessService(
            store, clock=clock, shard=config.broker.shard, audit=config.acl.audit
        )
        self.quotas = QuotaService(
            self.access, clock=clock, topics=self.topics.all, groups=self.groups.all
        )
        self.topics.limit_by(self.quotas.topic_problem)
        self.groups.limit_by(self.quotas.group_problem)
        self.metaq_settings = LiveSettings(config.metaq)
        self.metaq_transactions = MetaqTransactions(
            self.messages, self.topics, loop=loop, clock=clock, settings=self.metaq_settings
        )
        self._clock = clock
        self.lingering = Lingering(self.topics, clock=clock, loop=loop)
        self.topics.on_change.append(self._forget_offsets)
        self.groups.light = self.messages.light
        self.messages.light.on_gone.append(self._forget_light)
        self._apply_light(config.rocketmq)
        store.on_metadata.add(self._refresh)

    def apply(self, config: BrokerConfig) -> None:
        """Put changed settings in force."""
        self.topics.handles.set_default_level(Acknowledgement(config.acknowledgement_level))
        self.topics.topics_max = config.limits.topics_max
        self.topics.auto_create_enabled = config.rocketmq.auto_create_topic
        self.groups.groups_max = config.limits.groups_max
        self.groups.auto_create_enabled = config.rocketmq.auto_create_group
        self.messages.acknowledgements.timeout_ms = config.acknowledgement.timeout_ms
        self.metaq_settings.current = config.metaq
        store = config.store
        kept = config.tier.disk_keeps(store.retention_ms, store.retention_bytes_max)
        self.messages.store.keep(*kept)
        self._apply_light(config.rocketmq)

    def _apply_light(self, section: RocketmqSection) -> None:
        light = self.messages.light
        light.enabled, light.queues_max = section.light_queues, section.light_queues_max

    def clean_up(self) -> None:
        """See whether users still count; let go of light queues that have no message any more."""
        self.access.outdated.look()
        if not self.topics.may_change:
            return
        try:
            light, topics = self.messages.light, self.topics
            light.clean_up(self.messages.flush_turn)
            now_ms = self._clock.epoch_ms()
            light.expire(
                lambda name: lite_minutes(topics.get(name)), now_ms, self.messages.flush_turn
            )
        except StoreError as error:
            logger.warning("light_queues_not_cleaned error=%s", error)  # the next one goes on

    def lead(self, config: BrokerConfig) -> None:
        """Make what a leader's log has to have and ours lacks, as far as there is room."""
        try:
            self.topics.ensure_system_topics()
            self.declared.lead(config)
        except DiskFullError as error:
            # Topics that are there are served all the same.
            self.declared.wait_for_room(error)
        with contextlib.suppress(DiskFullError):  # the next leader does it
            self.messages.store.identities.complete()

    def close(self, *, clean: bool) -> None:
        """Answer what still waits; `clean`: write what is gathered."""
        self.lingering.close()
        self.metaq_transactions.stop()
        self.messages.acknowledgements.release_all(PutStatus.STOPPING)
        self.messages.acknowledgements.close()
        if clean:
            self.offsets.flush()

    def _refresh(self, changed: Iterable[tuple[str, str]]) -> None:
        """Follow what the leader's log, or a cut of ours, says of topics, groups and offsets."""
        keys: dict[str, list[str]] = {}
        for kind, key in changed:
            keys.setdefault(kind, []).append(key)
        self.topics.refresh(keys.get(TOPIC_KIND, ()))
        self.groups.refresh(keys.get(GROUP_KIND, ()))
        self.offsets.refresh(keys.get(OFFSET_KIND, ()))

    def _level_of(self, topic: bytes) -> Acknowledgement:
        return self.topics.handles.level_of(topic)

    def _forget_light(self, name: str) -> None:
        if self.topics.may_change:
            self.offsets.forget_topic(name)

    def _forget_offsets(self, name: str, config: object | None) -> None:
        if config is None:
            self.offsets.forget_topic(name)
