"""Puts together what only RocketMQ needs, over what the broker has anyway.

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
from imago_broker.service.sweeping import Sweeper
from imago_broker.service.traffic import Traffic
from imago_broker.service.transactions.checks import TransactionChecks
from imago_broker.service.transactions.service import TransactionService
from imago_broker.service.versions import TableVersion
from imago_wire.remoting.message_ids import UniqueKeys

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from imago_broker.config.sections import RocketmqSection
    from imago_broker.core.budget import OutputBudget
    from imago_broker.model.topics import TopicConfig
    from imago_broker.ports import Clock, Registry, ToldEntries
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.access import AccessService
    from imago_broker.service.groups import GroupService
    from imago_broker.service.messages import MessageService
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.offsets import ConsumerOffsets
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.topics import TopicService
    from imago_log.store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqAssembly:
    """The parts that the processors are made from; for `table` and the broker's `app` alone."""

    identity: RocketmqIdentity
    settings: LiveSettings[RocketmqSection]
    told: ToldEntries
    store: MessageStore
    messages: MessageService
    sequenced: SequencedPuts
    topics: TopicService
    offsets: ConsumerOffsets
    groups: GroupService
    access: AccessService
    group_rules: GroupRules
    clock: Clock
    registry: Registry
    serving_rules: ServingRules
    budget: OutputBudget
    """Of what the connections of all ports have not read yet."""
    clients: ClientRegistry
    locks: QueueLocks
    delay: DelayService
    transactions: TransactionService
    checks: TransactionChecks
    timers: TimerService
    needed: NeededRecords
    pops: PopService
    pop_reader: PopReader
    pop_waiting: PopWaiting
    request_modes: RequestModes
    hold: PullHold
    unique_keys: UniqueKeys
    resets: PendingResets
    resetter: OffsetResetter
    sweeper: Sweeper
    history: FigureHistory
    memory: MemoryWindow
    topic_version: TableVersion
    group_version: TableVersion
    started_ms: int
    traffic: Traffic
    lanes: Lanes = field(default_factory=Lanes.made)
    on_topic_made: list[Callable[[TopicConfig, str], None]] = field(default_factory=list)
    """Told each topic that a send has made, and its template; not groups' own."""

    def start(self) -> None:
        """Do from now on what only a master does by itself."""
        self.delay.start()
        self.timers.start()
        self.transactions.start()
        self.pops.start()

    def tick(self) -> None:
        """Do what is due every second."""
        self.sweeper.sweep()
        self.history.sample()

    def answer_held(self) -> None:
        """Answer now what waits for messages."""
        self.hold.release_all()
        self.pop_waiting.release_all()

    def stop(self) -> None:
        """Do it no more."""
        self.pops.stop()
        self.transactions.stop()
        self.timers.stop()
        self.delay.stop()


def assemble(
    *,
    identity: RocketmqIdentity,
    settings: RocketmqSection,
    told: ToldEntries,
    before_settings_change: Callable[[RocketmqSection], None],
    metaq_transactions: MetaqTransactions,
    messages: MessageService,
    topics: TopicService,
    offsets: ConsumerOffsets,
    groups: GroupService,
    access: AccessService,
    clock: Clock,
    registry: Registry,
    serving_rules: ServingRules,
    budget: OutputBudget,
    loop: asyncio.AbstractEventLoop,
) -> RocketmqAssembly:
    """Make what only RocketMQ needs and connect it with what the broker has anyway.

    `before_settings_change` is called when a client changes settings, so that every interface shows
    the same. Delays, timers, transactions and POP are not started: that happens once the broker may
    write.
    """
    store = messages.store
    hold = PullHold(loop, clock, held_max=settings.pull_holds_max)
    delay = DelayService(messages, topics, loop=loop, clock=clock, levels=settings.delay_levels)
    messages.on_arrival(hold.arrived)
    messages.on_arrival(delay.arrived)
    timers = TimerService(messages, topics, loop=loop, clock=clock)
    messages.on_arrival(timers.arrived)
    memory = MemoryWindow.of_machine(store)
    pops = PopService(messages, offsets, loop=loop)
    pop_waiting = PopWaiting(loop, clock)
    pops.on_stop.append(pop_waiting.release_all)
    messages.on_arrival(pop_waiting.arrived)
    topics.on_change.append(lambda name, _config: pop_waiting.topic_changed(name))
    request_modes = RequestModes(store)
    offsets.on_forgotten.append(request_modes.forget)
    now_ms = clock.epoch_ms()
    topic_version, group_version = TableVersion(now_ms), TableVersion(now_ms)
    topics.on_change.append(lambda _name, _config: topic_version.bump(clock.epoch_ms()))
    topics.on_change.append(lambda name, _config: hold.topic_changed(name))
    traffic = Traffic()
    clients, locks, resets = ClientRegistry(), QueueLocks(), PendingResets()
    live = LiveSettings(settings, before_settings_change)
    transactions = TransactionService(
        messages, topics, delay, loop=loop, clock=clock, settings=live
    )
    checks = TransactionChecks(
        transactions,
        messages,
        clients,
        loop=loop,
        clock=clock,
        settings=live,
        broker_name=identity.broker_name,
    )
    return RocketmqAssembly(
        identity=identity,
        settings=live,
        told=told,
        store=store,
        messages=messages,
        sequenced=SequencedPuts(messages),
        topics=topics,
        offsets=offsets,
        groups=groups,
        access=access,
        group_rules=GroupRules(groups=groups, topics=topics, serving_rules=serving_rules),
        clock=clock,
        registry=registry,
        serving_rules=serving_rules,
        budget=budget,
        clients=clients,
        locks=locks,
        delay=delay,
        transactions=transactions,
        checks=checks,
        timers=timers,
        needed=NeededRecords(store, delay, transactions, timers, metaq_transactions.notes),
        pops=pops,
        pop_reader=PopReader(store, pops, first_in_memory=memory.holds_first),
        pop_waiting=pop_waiting,
        request_modes=request_modes,
        hold=hold,
        unique_keys=UniqueKeys(
            store.config.store_host[:-4], os.getpid(), secrets.randbits(32), clock.epoch_ms
        ),
        resets=resets,
        resetter=OffsetResetter(
            identity=identity, offsets=offsets, resets=resets, hold=hold, clients=clients
        ),
        sweeper=Sweeper(
            store=store, clients=clients, locks=locks, serving_rules=serving_rules, clock=clock
        ),
        history=FigureHistory(messages, traffic, timers, clock),
        traffic=traffic,
        memory=memory,
        topic_version=topic_version,
        group_version=group_version,
        started_ms=now_ms,
    )
