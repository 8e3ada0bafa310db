"""Puts together what only RocketMQ needs, over what the broker has anyway, subject by subject.

Processors do not see this: each takes by its constructor what it uses, and `table` hands that out.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.config.live import LiveSettings
from imago_broker.model.feature_level import LIGHT_QUEUES, waits_for
from imago_broker.processors.rocketmq.groups.members import ClientParts
from imago_broker.processors.rocketmq.groups.resetting import OffsetResetter
from imago_broker.processors.rocketmq.identity import ThisBroker
from imago_broker.processors.rocketmq.lanes import Lanes
from imago_broker.processors.rocketmq.needs import PUBLISH, of_topic
from imago_broker.processors.rocketmq.pull.filter_turns import FilterTurns
from imago_broker.processors.rocketmq.pull.memory_window import MemoryWindow
from imago_broker.processors.rocketmq.pull.subscriptions import MessageSelector
from imago_broker.processors.rocketmq.rules import GroupRules
from imago_broker.processors.rocketmq.send.sending import PutParts
from imago_broker.service.delays.levels.levels import DelayService
from imago_broker.service.delays.timers.timers import TimerService
from imago_broker.service.figures.day_recorder import DayRecorder
from imago_broker.service.figures.figure_history import FigureHistory
from imago_broker.service.figures.traffic import Traffic
from imago_broker.service.figures.usage import UsageFigures
from imago_broker.service.groups.clients import ClientRegistry
from imago_broker.service.groups.locks import QueueLocks
from imago_broker.service.groups.pull_hold import PullHold
from imago_broker.service.groups.resets import PendingResets
from imago_broker.service.groups.sweeping import Sweeper
from imago_broker.service.needed_records import NeededRecords
from imago_broker.service.puts.sequencing import SequencedPuts
from imago_broker.service.readers import QueueReaders
from imago_broker.service.topics.static_topics import KIND as STATIC_KIND
from imago_broker.service.topics.static_topics import StaticTopics
from imago_broker.service.topics.versions import TableVersion
from imago_broker.service.transactions.checks import TransactionChecks
from imago_broker.service.transactions.service import TransactionService
from imago_wire.remoting.texts.message_ids import UniqueKeys

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable

    from imago_broker.config import BrokerConfig
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.core.budget import OutputBudget
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.ports import Clock, Registry, SharedMarks, ToldEntries
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.processors.rocketmq.installed import Installed
    from imago_broker.processors.rocketmq.static.static_front import OtherBrokers
    from imago_broker.service.access.access import AccessService
    from imago_broker.service.access.access_drafts import Drafts
    from imago_broker.service.access.throttling import QuotaService
    from imago_broker.service.groups.clients import ConnectedClient
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.role import ShardRole
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """What the broker has anyway, whatever its clients speak."""

    config: BrokerConfig
    """As the broker starts: see `Installed.apply`."""
    cluster_id: Callable[[], str]
    """What no other cluster has, once the registry has said it; until then nothing."""
    clock: Clock
    loop: asyncio.AbstractEventLoop
    registry: Registry
    serving_rules: ServingRules
    messages: MessageService
    topics: TopicService
    offsets: ConsumerOffsets
    groups: GroupService
    access: AccessService
    quotas: QuotaService
    pass_users_on: Callable[[Drafts], Awaitable[None]]
    """Has the shard's master change users as drafted; BrokerError: it does not."""
    spread_users: Callable[[], Awaitable[None]]
    """Has all other shards take users over; BrokerError: one has not."""
    marks: SharedMarks
    others: OtherBrokers
    """Asked for what they have of static topics."""
    metaq_transactions: MetaqTransactions
    budget: OutputBudget
    """Of what the connections of all ports have not read yet."""
    topics_published: Callable[[], Awaitable[None]]
    """Wait until the registry has all topics as they are now: for a while, it repeats."""

    @property
    def store(self) -> MessageStore:
        """The shard's store."""
        return self.messages.store


@dataclass(frozen=True, slots=True, kw_only=True)
class NameParts:
    """Topics and groups as RocketMQ's tools see them."""

    group_rules: GroupRules
    static_topics: StaticTopics
    topic_version: TableVersion
    group_version: TableVersion
    on_topic_made: list[Callable[[TopicConfig, str], None]] = field(default_factory=list)
    """Told each topic that a send has made, and its template; not groups' own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryParts:
    """Pulls that wait, what selects messages, and figures of what was delivered."""

    hold: PullHold
    turns: FilterTurns
    selector: MessageSelector
    memory: MemoryWindow
    traffic: Traffic
    history: FigureHistory
    usage: UsageFigures
    day: DayRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayParts:
    """Messages that are delivered later."""

    levels: DelayService
    timers: TimerService


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionParts:
    """Transactions, and the questions to those who have left one open."""

    service: TransactionService
    checks: TransactionChecks


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqAssembly:
    """The parts that the processors are made from; for `table` and the broker's `app` alone."""

    identity: RocketmqIdentity
    settings: LiveSettings[RocketmqSection]
    told: ToldEntries
    broker: BrokerParts
    names: NameParts
    clients: ClientParts
    puts: PutParts
    delivery: DeliveryParts
    delays: DelayParts
    transactions: TransactionParts
    needed: NeededRecords
    readers: QueueReaders
    features: list[Installed]
    """What plugs in, in the order in which it starts."""
    started_ms: int
    lanes: Lanes = field(default_factory=Lanes.made)

    @property
    def this(self) -> ThisBroker:
        """Who answers, and how it is set."""
        return ThisBroker(identity=self.identity, settings=self.settings)

    def start(self) -> None:
        """Do from now on what only a master does by itself."""
        self.names.static_topics.start()
        for feature in self.features:
            feature.start()

    def tick(self) -> None:
        """Do what is due every second."""
        self.clients.sweeper.sweep()
        self.delivery.history.sample()
        self.delivery.usage.tick()

    def answer_held(self) -> None:
        """Answer now what waits for messages."""
        self.delivery.hold.release_all()
        for feature in self.features:
            feature.release()

    def stop(self) -> None:
        """Do it no more."""
        self.delivery.usage.stop()
        for feature in reversed(self.features):
            feature.stop()


def assemble(
    broker: BrokerParts,
    *,
    identity: RocketmqIdentity,
    settings: RocketmqSection,
    told: ToldEntries,
    before_settings_change: Callable[[RocketmqSection], None],
) -> RocketmqAssembly:
    """Make what only RocketMQ needs and connect it with what the broker has anyway.

    `before_settings_change` is called when a client changes settings, so that every interface shows
    the same. Features come later (`features.catalogue`), and nothing is started: that happens once
    the broker may write.
    """
    store, live = broker.store, LiveSettings(settings, before_settings_change)
    delays = _delays(broker, settings.delay_levels)
    hold = _pull_hold(broker, settings.pull_holds_max)
    clients = _clients(broker, identity, hold)
    delivery = _delivery(broker, hold, delays.timers, clients.registry, live, identity.cluster)
    transactions = _transactions(broker, live, identity, delays.levels, clients.registry)
    broker.messages.light.obstacles.append(
        lambda: waits_for(LIGHT_QUEUES, broker.registry.view().feature_level)
    )
    features: list[Installed] = []
    now_ms = broker.clock.epoch_ms()
    return RocketmqAssembly(
        identity=identity,
        settings=live,
        told=told,
        broker=broker,
        names=_names(broker, now_ms),
        clients=clients,
        puts=PutParts(
            messages=broker.messages,
            topics=broker.topics,
            sequenced=SequencedPuts(broker.messages),
            delay=delays.levels,
            unique_keys=UniqueKeys(
                store.config.store_host[:-4],
                os.getpid(),
                secrets.randbits(32),
                broker.clock.epoch_ms,
            ),
        ),
        delivery=delivery,
        delays=delays,
        transactions=transactions,
        features=features,
        needed=NeededRecords(store, broker.metaq_transactions.notes, features),
        readers=QueueReaders(
            store,
            broker.topics,
            broker.offsets,
            clients.registry,
            clock=broker.clock,
            cluster=identity.cluster,
        ),
        started_ms=now_ms,
    )


def _names(broker: BrokerParts, now_ms: int) -> NameParts:
    topics, clock = broker.topics, broker.clock
    topic_version = TableVersion(now_ms)
    topics.on_change.append(lambda _name, _config: topic_version.bump(clock.epoch_ms()))
    rules = GroupRules(groups=broker.groups, topics=topics, serving_rules=broker.serving_rules)
    static_topics = StaticTopics(broker.store, broker.marks, broker.loop)
    topics.on_change.append(static_topics.topic_changed)
    topics.handles.leave_out(static_topics.known)

    def refresh(changed: Iterable[tuple[str, str]]) -> None:
        mapped = [key for kind, key in changed if kind == STATIC_KIND]
        static_topics.refresh(mapped)
        for topic in mapped:
            topics.handles.forget(topic)

    broker.store.on_metadata.add(refresh)
    for topic in static_topics.known:
        topics.handles.forget(topic)
    return NameParts(
        group_rules=rules,
        static_topics=static_topics,
        topic_version=topic_version,
        group_version=TableVersion(now_ms),
    )


def _delays(broker: BrokerParts, levels: str) -> DelayParts:
    messages, topics, loop, clock = broker.messages, broker.topics, broker.loop, broker.clock
    delay = DelayService(messages, topics, loop=loop, clock=clock, levels=levels)
    timers = TimerService(messages, topics, loop=loop, clock=clock)
    messages.on_arrival(delay.arrived)
    messages.on_arrival(timers.arrived)
    return DelayParts(levels=delay, timers=timers)


def _pull_hold(broker: BrokerParts, held_max: int) -> PullHold:
    hold = PullHold(broker.loop, broker.clock, held_max=held_max)
    broker.messages.on_arrival(hold.arrived)
    broker.topics.on_change.append(lambda name, _config: hold.topic_changed(name))
    broker.messages.light.on_gone.append(hold.light_queue_gone)
    return hold


def _delivery(
    broker: BrokerParts,
    hold: PullHold,
    timers: TimerService,
    clients: ClientRegistry,
    settings: LiveSettings[RocketmqSection],
    cluster: str,
) -> DeliveryParts:
    turns = FilterTurns(broker.loop)
    traffic = Traffic()
    role = broker.serving_rules.role
    day = DayRecorder(broker.messages, traffic, broker.offsets, role, broker.clock)
    usage = UsageFigures(
        broker.messages,
        traffic,
        broker.clock,
        loop=broker.loop,
        cluster=cluster,
        record=day.steps,
    )
    broker.topics.on_change.append(day.topic_changed)
    broker.topics.handles.on_first_put.append(usage.used)
    broker.topics.on_change.append(usage.topic_changed)
    return DeliveryParts(
        hold=hold,
        turns=turns,
        selector=MessageSelector(
            clients=clients, groups=broker.groups, filters=turns.filters, settings=settings
        ),
        memory=MemoryWindow.of_machine(broker.store),
        traffic=traffic,
        history=FigureHistory(broker.messages, traffic, timers, broker.clock),
        usage=usage,
        day=day,
    )


def _clients(broker: BrokerParts, identity: RocketmqIdentity, hold: PullHold) -> ClientParts:
    access = broker.access

    def may_publish(client: ConnectedClient, topic: str) -> bool:
        return access.may(client.user, of_topic(topic, PUBLISH), client.channel.address)

    registry, locks, resets = ClientRegistry(may_publish), QueueLocks(), PendingResets()
    broker.offsets.on_forgotten.append(resets.forget)

    def role_changed(role: ShardRole) -> None:
        if not role.leads:
            resets.clear()

    broker.serving_rules.role.on_change.append(role_changed)
    return ClientParts(
        registry=registry,
        locks=locks,
        resets=resets,
        resetter=OffsetResetter(
            identity=identity, offsets=broker.offsets, resets=resets, hold=hold, clients=registry
        ),
        sweeper=Sweeper(
            store=broker.store,
            clients=registry,
            locks=locks,
            serving_rules=broker.serving_rules,
            clock=broker.clock,
        ),
    )


def _transactions(
    broker: BrokerParts,
    settings: LiveSettings[RocketmqSection],
    identity: RocketmqIdentity,
    levels: DelayService,
    clients: ClientRegistry,
) -> TransactionParts:
    messages, loop, clock = broker.messages, broker.loop, broker.clock
    service = TransactionService(
        messages, broker.topics, levels, loop=loop, clock=clock, settings=settings
    )
    checks = TransactionChecks(
        transactions=service,
        messages=messages,
        clients=clients,
        loop=loop,
        clock=clock,
        settings=settings,
        broker_name=identity.broker_name,
    )
    return TransactionParts(service=service, checks=checks)
