"""Puts together what only RocketMQ needs, over what the broker has anyway, subject by subject.

Processors do not see this: each takes by its constructor what it uses, and `table` hands that out.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.config.live import LiveSettings
from imago_broker.processors.rocketmq.lanes import Lanes
from imago_broker.processors.rocketmq.memory_window import MemoryWindow
from imago_broker.processors.rocketmq.resetting import OffsetResetter
from imago_broker.processors.rocketmq.rights import PUBLISH, of_topic
from imago_broker.processors.rocketmq.rules import GroupRules
from imago_broker.service.clients import ClientRegistry
from imago_broker.service.delays.levels import DelayService
from imago_broker.service.delays.timers import TimerService
from imago_broker.service.figure_history import FigureHistory
from imago_broker.service.locks import QueueLocks
from imago_broker.service.needed_records import NeededRecords
from imago_broker.service.pop.reading import PopReader
from imago_broker.service.pop.request_modes import RequestModes
from imago_broker.service.pop.service import PopService
from imago_broker.service.pop.waiting import PopWaiting
from imago_broker.service.pull_hold import PullHold
from imago_broker.service.resets import PendingResets
from imago_broker.service.sequencing import SequencedPuts
from imago_broker.service.static_topics import KIND as STATIC_KIND
from imago_broker.service.static_topics import StaticTopics
from imago_broker.service.sweeping import Sweeper
from imago_broker.service.traffic import Traffic
from imago_broker.service.transactions.checks import TransactionChecks
from imago_broker.service.transactions.service import TransactionService
from imago_broker.service.usage import UsageFigures
from imago_broker.service.versions import TableVersion
from imago_wire.remoting.message_ids import UniqueKeys

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable

    from imago_broker.config.sections import RocketmqSection
    from imago_broker.core.budget import OutputBudget
    from imago_broker.model.topics import TopicConfig
    from imago_broker.ports import Clock, Registry, SharedMarks, ToldEntries
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.processors.rocketmq.static_front import OtherBrokers
    from imago_broker.service.access import AccessService
    from imago_broker.service.access_drafts import Drafts
    from imago_broker.service.clients import ConnectedClient
    from imago_broker.service.groups import GroupService
    from imago_broker.service.messages import MessageService
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.offsets import ConsumerOffsets
    from imago_broker.service.role import ShardRole
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.throttling import QuotaService
    from imago_broker.service.topics import TopicService
    from imago_log.store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """What the broker has anyway, whatever its clients speak."""

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
class ClientParts:
    """Who is connected, and what it has been told or holds."""

    registry: ClientRegistry
    locks: QueueLocks
    resets: PendingResets
    resetter: OffsetResetter
    sweeper: Sweeper


@dataclass(frozen=True, slots=True, kw_only=True)
class PutParts:
    """What sends use beside the broker's own."""

    sequenced: SequencedPuts
    unique_keys: UniqueKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryParts:
    """Pulls that wait, and figures of what was delivered."""

    hold: PullHold
    memory: MemoryWindow
    traffic: Traffic
    history: FigureHistory
    usage: UsageFigures


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
class PopServices:
    """POP consumption."""

    service: PopService
    reader: PopReader
    waiting: PopWaiting
    modes: RequestModes


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
    pop: PopServices
    needed: NeededRecords
    started_ms: int
    lanes: Lanes = field(default_factory=Lanes.made)

    def start(self) -> None:
        """Do from now on what only a master does by itself."""
        self.names.static_topics.start()
        self.delays.levels.start()
        self.delays.timers.start()
        self.transactions.service.start()
        self.pop.service.start()

    def tick(self) -> None:
        """Do what is due every second."""
        self.clients.sweeper.sweep()
        self.delivery.history.sample()
        self.delivery.usage.tick()

    def answer_held(self) -> None:
        """Answer now what waits for messages."""
        self.delivery.hold.release_all()
        self.pop.waiting.release_all()

    def stop(self) -> None:
        """Do it no more."""
        self.delivery.usage.stop()
        self.pop.service.stop()
        self.transactions.service.stop()
        self.delays.timers.stop()
        self.delays.levels.stop()


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
    the same. Delays, timers, transactions and POP are not started: that happens once the broker may
    write.
    """
    store, live = broker.store, LiveSettings(settings, before_settings_change)
    delays = _delays(broker, settings.delay_levels)
    delivery = _delivery(
        broker, delays.timers, held_max=settings.pull_holds_max, cluster=identity.cluster
    )
    clients = _clients(broker, identity, delivery.hold)
    transactions = _transactions(broker, live, identity, delays.levels, clients.registry)
    pop = _pop(broker, delivery.memory)
    now_ms = broker.clock.epoch_ms()
    return RocketmqAssembly(
        identity=identity,
        settings=live,
        told=told,
        broker=broker,
        names=_names(broker, now_ms),
        clients=clients,
        puts=PutParts(
            sequenced=SequencedPuts(broker.messages),
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
        pop=pop,
        needed=NeededRecords(
            store,
            delays.levels,
            transactions.service,
            delays.timers,
            broker.metaq_transactions.notes,
            pop.service,
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


def _delivery(
    broker: BrokerParts, timers: TimerService, *, held_max: int, cluster: str
) -> DeliveryParts:
    hold = PullHold(broker.loop, broker.clock, held_max=held_max)
    broker.messages.on_arrival(hold.arrived)
    broker.topics.on_change.append(lambda name, _config: hold.topic_changed(name))
    broker.messages.light.on_gone.append(hold.topic_changed)
    traffic = Traffic()
    usage = UsageFigures(broker.messages, traffic, broker.clock, loop=broker.loop, cluster=cluster)
    broker.topics.handles.on_first_put.append(usage.used)
    broker.topics.on_change.append(usage.topic_changed)
    return DeliveryParts(
        hold=hold,
        memory=MemoryWindow.of_machine(broker.store),
        traffic=traffic,
        history=FigureHistory(broker.messages, traffic, timers, broker.clock),
        usage=usage,
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
        service,
        messages,
        clients,
        loop=loop,
        clock=clock,
        settings=settings,
        broker_name=identity.broker_name,
    )
    return TransactionParts(service=service, checks=checks)


def _pop(broker: BrokerParts, memory: MemoryWindow) -> PopServices:
    service = PopService(broker.messages, broker.offsets, loop=broker.loop)
    waiting = PopWaiting(broker.loop, broker.clock)
    service.on_stop.append(waiting.release_all)
    service.awaited_room.on_room.append(waiting.look_again)
    broker.offsets.on_set.append(waiting.look_again)
    broker.messages.on_arrival(waiting.arrived)
    broker.groups.on_closed.append(waiting.group_closed)
    broker.topics.on_change.append(lambda name, _config: waiting.topic_changed(name))
    modes = RequestModes(broker.store)
    broker.offsets.on_forgotten.append(modes.forget)

    def topic_changed(name: str, config: TopicConfig | None) -> None:
        if config is None:
            modes.forget_topic(name)

    broker.topics.on_change.append(topic_changed)
    broker.messages.light.on_gone.append(waiting.topic_changed)
    return PopServices(
        service=service,
        reader=PopReader(broker.store, service, first_in_memory=memory.holds_first),
        waiting=waiting,
        modes=modes,
    )
