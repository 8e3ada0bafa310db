"""The broker: all parts of one process, started in order, stopped in reverse."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.app.access import follow_copy
from imago_broker.app.admin_view import admin_services, readers_elsewhere, shard_services
from imago_broker.app.clock import SystemClock
from imago_broker.app.coordination import announce, join, make_coordinator
from imago_broker.app.core_services import CoreServices
from imago_broker.app.kept_settings.tool_settings import ToldSettings
from imago_broker.app.member.hindrances import refused
from imago_broker.app.member.identity import advertised_host, data_folder_uuid, numeric_address
from imago_broker.app.member.metaq_originals import make_metaq_slave, make_samsa_master
from imago_broker.app.member.role_services import RoleServices
from imago_broker.app.member.shard_member import LocalShard, ShardMember, is_member
from imago_broker.app.member.shard_worker import ShardWorker
from imago_broker.app.metrics.metrics import add_metrics
from imago_broker.app.ports.listeners import Ports
from imago_broker.app.ports.metaq_port import ConfigFile, serve_metaq
from imago_broker.app.ports.rocketmq_ports import assemble_rocketmq, serve_names, serve_rocketmq
from imago_broker.app.process_hooks import ProcessHooks
from imago_broker.app.registration import Registration, broker_record
from imago_broker.app.reloading import ConfigSource, reload
from imago_broker.app.storage import close_store, open_store
from imago_broker.app.ticking import Ticker
from imago_broker.errors import ExitCode, FatalError
from imago_broker.metrics import BrokerCollector, MetaqCounters
from imago_broker.model.registry.cluster import RegistryConnection
from imago_broker.service.puts.gate import ShardGate
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.readers import LogClaims
from imago_broker.service.role import ALONE, UNSETTLED, RoleState
from imago_broker.service.serving_rules import ServingRules, always

if TYPE_CHECKING:
    from imago_broker.admin.services import AdminServices
    from imago_broker.app.ports.metaq_port import MetaqPort
    from imago_broker.config import BrokerConfig
    from imago_broker.config.changes import Changes
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.namesrv.server import NameService
    from imago_broker.ports import Clock, Coordinator
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.replication.metaq.slave import MetaqSlave
    from imago_broker.server.client_ports import ClientPorts
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService
    from imago_log.errors import StoreError
    from imago_log.results import StoreHealth
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

PUBLISH_SECONDS_MAX = 10.0
"""How long a start waits until clients can find the topics that it made."""


class Broker:
    """One broker in this process: `await start()`, use the ports, `await stop()`.

    Everything runs on the loop that called `start`. `failed` is done when the broker cannot go
    on by itself; whoever started it then stops it and ends with the error's exit code.
    """

    store: MessageStore
    messages: MessageService
    topics: TopicService
    groups: GroupService
    offsets: ConsumerOffsets
    rocketmq: RocketmqAssembly
    failed: asyncio.Future[FatalError]
    uuid: str
    told: ToldSettings  # what RocketMQ's tools have changed
    first_log_end: int  # where the log ended when this process opened it
    core: CoreServices
    gate: ShardGate | None
    """Whether this member may acknowledge; None: the shard is not led through the registry."""
    registration: Registration
    role_services: RoleServices
    ticker: Ticker
    serving_rules: ServingRules  # who may be served what; follows `role`
    client_ports: ClientPorts

    def __init__(
        self,
        config: BrokerConfig,
        *,
        coordinator: Coordinator | None = None,
        clock: Clock | None = None,
        process: ProcessHooks | None = None,
    ) -> None:
        """Without a coordinator one is made as the configuration's `zookeeper.connect` says."""
        self.config = config
        self.process = process = process or ProcessHooks()
        self.source = ConfigSource(process.reread, self.reload, config.metaq.server_ini)
        self.clock: Clock = clock or SystemClock()
        self.host = advertised_host(config.broker.host, config.broker.bind)
        self.collector = BrokerCollector()
        self.metaq: MetaqPort | None = None
        self.metaq_slave: MetaqSlave | None = None
        self.names: NameService | None = None
        self.metaq_counters = MetaqCounters()
        self.told_host = config.broker.advertised_host or self.host  # for clients
        self.config_file = ConfigFile(lambda: self.config, host=self.told_host)
        self.coordinator = coordinator or make_coordinator(config, self.config_file(), stores=True)
        self.serving = False
        self.shards = ShardWorker()
        self.ports = Ports(config, self.coordinator.view, self.record, self.clock)
        self.role = RoleState(UNSETTLED if is_member(config) else ALONE)
        self.member: ShardMember | None = None
        """Our part in a shard that is led through the registry; None: there is nobody else."""
        self._clean = True
        self._opened = AsyncExitStack()
        """What ends after the ports are closed."""
        self._announced = AsyncExitStack()
        """What ends while they still answer."""

    @property
    def metaq_port(self) -> int:
        """Bound port of the MetaQ listener; 0: not enabled."""
        return self.ports.metaq_port

    @property
    def rocketmq_port(self) -> int:
        """Bound port of the RocketMQ listener; 0: not enabled."""
        return self.ports.rocketmq_port

    @property
    def health(self) -> StoreHealth:
        return self.ticker.health

    async def start(self) -> None:
        """Open the store, then the registry, then the ports; FatalError says why it cannot."""
        self.failed = asyncio.get_running_loop().create_future()
        try:
            # The ports first: a busy one must not cost a recovery of the log.
            self.ports.bind()
            self._open(await numeric_address(self.told_host))
            await self._join()
            await self._serve()
            await self._announce()
        except BaseException:
            await self.stop()
            raise

    async def stop(self, *, clean: bool = True) -> None:
        """Accept no more, answer what is in flight, sync, mark the store clean.

        `clean=False` after an I/O error: nothing more is written. May be called again.
        """
        self.serving = False
        self._clean = clean
        async with self._opened:
            try:
                await self._announced.aclose()
            finally:
                await self.ports.stop(
                    drain_seconds=self.config.broker.drain_seconds if clean else 0.0
                )

    def fail(self, error: FatalError) -> None:
        """Note that the broker cannot go on; the first reason counts."""
        self.messages.refuse(PutStatus.STOPPING)
        if not self.failed.done():
            logger.critical("broker_failed exit_code=%d reason=%s", error.exit_code, error)
            self.failed.set_result(error)

    def apply(self, config: BrokerConfig) -> None:
        """Put changed settings in force; those that need a restart wait for it."""
        if config.log.level != self.config.log.level:
            logging.getLogger().setLevel(config.log.level.upper())
        self.config = config
        self.core.apply(config)
        if self.member is not None:
            self.member.apply(config)
            self.role_services.apply(config)
        self.rocketmq.settings.current = config.rocketmq
        for feature in self.rocketmq.features:
            feature.apply(config)
        if self.metaq is not None:
            self.metaq.apply(config)
        self.registration.changed(self.record(), config, self.config_file())

    def _rocketmq_settings_changed(self, settings: RocketmqSection) -> None:
        """Keep what a RocketMQ tool changed, so that every part and interface has the same."""
        self.config = replace(self.config, rocketmq=settings)
        self.core.apply(self.config)

    def reload(self, config: BrokerConfig) -> Changes:
        """Take what can change now from a new configuration: see `reloading`."""
        return reload(
            self.config,
            self.told.over(config),
            declared=self.core.declared,
            leads=self.topics.may_change,
            apply=self.apply,
        )

    def record(self) -> BrokerRecord:
        """Return how this broker announces itself."""
        return broker_record(
            self.config,
            uuid=self.uuid,
            host=self.host,
            ports=self.ports,
            role=self.role.current.role,
            store=self.store if self.gate is not None else None,
            problem=self.member.problem if self.member is not None else "",
        )

    def admin_services(self) -> AdminServices:
        """Return what the admin interface asks of the parts."""
        return admin_services(self)

    def _open(self, address: str) -> None:
        config, loop = self.config, asyncio.get_running_loop()
        self.store = open_store(
            config,
            clock=self.clock,
            address=address,
            rocketmq_port=self.ports.told_rocketmq_port,
            lead=not is_member(config),
        )
        self._opened.callback(lambda: close_store(self.store, clean=self._clean))
        self.told = ToldSettings(Path(config.broker.data_dir))
        config = self.config = self.told.over(config)
        self.store.on_failure.add(self._store_failed_in_other_thread)
        self.first_log_end = self.store.log_end
        gate = self.gate = ShardGate(self.store, self.clock) if is_member(config) else None
        self.serving_rules = ServingRules(
            self.store,
            self.role,
            slave_reads=config.replication.slave_reads,
            lease_holds=gate.lease_holds if gate is not None else always,
        )
        self.uuid = data_folder_uuid(Path(config.broker.data_dir))
        services = self.core = CoreServices(
            self.store, config, clock=self.clock, loop=loop, gate=gate
        )
        self.messages, self.topics = services.messages, services.topics
        self.groups, self.offsets = services.groups, services.offsets
        self._opened.callback(lambda: self.core.close(clean=self._clean))
        services.declared.on_no_room.append(self.source.read_again)
        if gate is None:
            services.lead(config)
        else:
            services.declared.join(config)

    async def _join(self) -> None:
        await join(self.coordinator, self.config.zookeeper.connect)
        self._opened.push_async_callback(self.coordinator.stop)
        self.coordinator.on_state(self._registry_state_changed)

    def _registry_state_changed(self, state: RegistryConnection) -> None:
        if state is RegistryConnection.FENCED:
            reason = "another process has taken this broker's place in the registry"
            self.fail(FatalError(reason, exit_code=ExitCode.FENCED))

    async def _serve(self) -> None:
        loop, config = asyncio.get_running_loop(), self.config
        self.registration = Registration(self.coordinator, self.topics, config)
        self.rocketmq = assemble_rocketmq(
            config,
            self.core,
            clock=self.clock,
            loop=loop,
            registry=self.coordinator,
            serving_rules=self.serving_rules,
            host=self.told_host,
            ports=self.ports,
            shards=self.shards,
            told=self.told,
            before_settings_change=self._rocketmq_settings_changed,
            topics_published=self.registration.published,
        )
        self._wire_ports(loop)
        self.ticker = Ticker(
            store=self.store,
            clock=self.clock,
            claims=LogClaims(self.rocketmq.needed, self.rocketmq.readers, self._may_force),
            needed=self.rocketmq.needed,
            sync_interval_ms=lambda: self.config.store.sync_interval_ms,
            sweep=self._sweep,
            fail=self.fail,
        )
        if self.gate is not None:
            self._make_member(self.gate)
        self.metaq_slave = make_metaq_slave(
            self.core, self.coordinator.metaq_consumers, clock=self.clock
        )
        self.samsa = make_samsa_master(self.core, clock=self.clock)
        add_metrics(
            self.collector,
            config=config,
            members=lambda: self.config.broker.replicas,
            core=self.core,
            registry=self.coordinator,
            role=self.role,
            ports=self.ports,
            rocketmq=self.rocketmq,
            metaq_counters=self.metaq_counters,
            health=lambda: self.health,
            refused=lambda: refused(self, self.coordinator, self.member),
            member=self.member,
        )
        for listener in self.ports.wanted:
            await listener.start()

    def _make_member(self, gate: ShardGate) -> None:
        self.role_services = RoleServices(
            self.config,
            core=self.core,
            rocketmq=self.rocketmq,
            client_ports=self.client_ports,
            fail=self.fail,
        )
        self.member = ShardMember(
            self.config,
            LocalShard(
                uuid=self.uuid,
                messages=self.messages,
                gate=gate,
                role=self.role,
                clock=self.clock,
                record=self.record,
            ),
            coordinator=self.coordinator,
            port=self.ports.replication,
            host=self.role_services,
        )
        follow_copy(self.core.access, self.member, self.role, checked=self.config.acl.enabled)

    async def _announce(self) -> None:
        config, member = self.config, self.member
        if member is not None:
            self._announced.push_async_callback(self.role_services.linger)
        self._announced.push_async_callback(
            self.registration.withdraw, lambda: self.config.metaq.stop_linger_ms
        )
        await announce(self.registration, self.record())
        self._announced.callback(self.rocketmq.stop)
        self._announced.push_async_callback(self.rocketmq.readers.stop)
        if member is None:
            self.rocketmq.start()
            self.core.metaq_transactions.start()
        else:
            self._announced.push_async_callback(lambda: member.leave(orderly=self._clean))
            await member.start()
            await self.registration.published(PUBLISH_SECONDS_MAX)  # what a first master makes
        self._opened.push_async_callback(self.shards.stop)
        await self.shards.start(shard_services(self))
        if config.admin.enabled:
            await self.ports.admin.start(self.admin_services)
        for part in (self.samsa, self.ticker, self.source, self.metaq_slave):
            if part is not None:
                self._announced.callback(part.stop)
                part.start()
        self.serving = True
        self.ports.tell_started()

    def _wire_ports(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self.config
        if config.metaq.enabled:
            self.metaq = serve_metaq(
                self.ports,
                config,
                host=self.told_host,
                core=self.core,
                clock=self.clock,
                counters=self.metaq_counters,
                config_file=self.config_file,
                serving_rules=self.serving_rules,
                when_published=self.registration.when_published,
            )
        if config.rocketmq.enabled:
            serve_rocketmq(self.ports, config, self.rocketmq, loop)
        self.client_ports = self.ports.client_ports(
            loop, append_now=self.messages.flush_turn, answer_held=self.rocketmq.answer_held
        )
        if config.namesrv.enabled:
            self.names = serve_names(self.ports, config, self.rocketmq, self.coordinator, loop)
            self._opened.push_async_callback(self.names.stop)

    def _may_force(self) -> bool:
        return self.member is None or self.member.may_force()

    def _sweep(self) -> None:
        self.rocketmq.readers.look(
            self.coordinator.metaq_consumers, lambda: readers_elsewhere(shard_services(self))
        )
        self.ports.leave_files(self.store.log_end - self.store.log_start)
        self.ports.freed_input.look()
        if self.ports.told_hosts.look():
            self.registration.changed(self.record(), self.config, self.config_file())
        self.rocketmq.tick()
        self.core.clean_up()
        if self.names is not None:
            self.names.sweep()

    def _store_failed_in_other_thread(self, error: StoreError) -> None:
        loop = self.failed.get_loop()
        loop.call_soon_threadsafe(self.fail, FatalError(str(error), exit_code=ExitCode.IO))
