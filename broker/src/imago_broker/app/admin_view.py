"""What the admin interface asks of the broker's parts."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

from imago_broker.admin.services import AdminServices, Counters, GroupMember, MetaqManagement
from imago_broker.app.member import hindrances
from imago_broker.app.member.single_member import AloneShard
from imago_broker.app.ports.connected_clients import ConnectedClients
from imago_broker.app.ports.fence import FenceMark
from imago_broker.metrics import registry
from imago_broker.processors.rocketmq.groups.asked_members import readers_of
from imago_broker.service.delays.waiting_messages import WaitingMessages
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.shard_work.services import ShardServices
from imago_wire import compiled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from imago_broker.app.core_services import CoreServices
    from imago_broker.app.member.shard_member import ShardMember
    from imago_broker.app.member.shard_worker import ShardWorker
    from imago_broker.app.ports.listeners import Ports
    from imago_broker.app.ports.metaq_port import ConfigFile, MetaqPort
    from imago_broker.app.process_hooks import ProcessHooks
    from imago_broker.app.reloading import ConfigSource
    from imago_broker.config import BrokerConfig
    from imago_broker.metrics import BrokerCollector, MetaqCounters
    from imago_broker.ports import Clock, Coordinator, Registry
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.replication.metaq.slave import MetaqSlave
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.puts.messages import MessageService

logger = logging.getLogger(__name__)


class BrokerState(hindrances.HinderedState, Protocol):
    """The broker: its parts, and what changes of it while it runs."""

    first_log_end: int
    metaq: MetaqPort | None
    metaq_slave: MetaqSlave | None
    process: ProcessHooks
    source: ConfigSource
    config_file: ConfigFile
    core: CoreServices
    rocketmq: RocketmqAssembly
    metaq_counters: MetaqCounters
    coordinator: Coordinator
    clock: Clock
    collector: BrokerCollector
    member: ShardMember | None
    uuid: str
    ports: Ports
    shards: ShardWorker

    def apply(self, config: BrokerConfig) -> None: ...


def shard_services(state: BrokerState) -> ShardServices:
    """Hand over what the work among shards asks of the parts."""
    core, coordinator, store = state.core, state.coordinator, state.core.messages.store
    alone = AloneShard(
        lambda: store.epoch_seen, lambda: "" if state.serving else "the broker to serve"
    )
    return ShardServices(
        current_config=lambda: state.config,
        topics=core.topics,
        groups=core.groups,
        access=core.access,
        offsets=core.offsets,
        metaq_transactions=core.metaq_transactions,
        store=store,
        coordinator=coordinator,
        marks=coordinator.marks,
        metaq_consumers=coordinator.metaq_consumers,
        clock=state.clock,
        peer_tls=lambda: state.ports.peer_tls,
        control=state.member or alone,
        subscribed=state.rocketmq.clients.registry.subscribed,
        clients_return_ms=state.rocketmq.readers.clients_return_ms,
        on_topic_made=state.rocketmq.names.on_topic_made,
    )


def admin_services(state: BrokerState) -> AdminServices:
    """Hand over what the admin interface asks of the parts."""
    core, rocketmq, coordinator = state.core, state.rocketmq, state.coordinator
    messages, store, ports, member = core.messages, core.messages.store, state.ports, state.member
    shard = shard_services(state)
    clients = ConnectedClients(ports, rocketmq.clients.registry)
    return AdminServices(
        **{each.name: getattr(shard, each.name) for each in fields(shard)},
        work=state.shards.work,
        replace_config=state.apply,
        quotas=core.quotas,
        reset_offsets=rocketmq.clients.resetter.reset,
        pipelines=coordinator.pipelines,
        registry=registry(state.collector),
        uuid=state.uuid,
        replica=lambda: _replica(coordinator),
        health=lambda: state.health,
        problems=lambda: hindrances.problems(state, member),
        write_problems=lambda: hindrances.write_problems(state, coordinator),
        refused=lambda: hindrances.refused(state, coordinator, member),
        connections=lambda: {
            "metaq": ports.metaq.connections,
            "rocketmq": ports.rocketmq.connections + ports.fast.connections,
            "namesrv": ports.names.connections,
        },
        counters=lambda: Counters(
            messages_in=messages.appended,
            messages_out=rocketmq.delivery.traffic.messages,
            bytes_in=store.log_end - state.first_log_end,
            bytes_out=rocketmq.delivery.traffic.bytes + state.metaq_counters.bytes_out,
        ),
        replicated=lambda: _replicated(messages),
        members=lambda group: _members(rocketmq.clients.registry, group),
        readers=lambda group: readers_of(
            rocketmq.clients.registry, group, state.config.broker_name
        ),
        clients=clients.find,
        close_client=clients.close,
        day=rocketmq.delivery.day.history,
        messages=messages,
        unique_keys=rocketmq.puts.unique_keys,
        locks=rocketmq.clients.locks,
        waiting=WaitingMessages(store, rocketmq.delays.levels, rocketmq.delays.timers),
        transactions=rocketmq.transactions.service,
        tier=lambda: _tier(rocketmq),
        member_groups=lambda: sorted(rocketmq.clients.registry.consumer_groups()),
        metaq=MetaqManagement(
            stats=None if state.metaq is None else state.metaq.stats,
            run=None if state.metaq is None else state.metaq.run,
            config_file=state.config_file,
            reload=state.source.reload,
            slave=state.metaq_slave,
            stop=state.process.stop,
        ),
        fence=FenceMark(state.config.broker.data_dir, state.clock),
        version=importlib.metadata.version("imago-mq"),
        not_compiled=None if compiled.PURE else compiled.missing,
    )


def _tier(rocketmq: RocketmqAssembly) -> Mapping[str, Any] | None:
    return next((said for each in rocketmq.features if (said := each.told()) is not None), None)


async def readers_elsewhere(services: ShardServices) -> Mapping[str, Collection[str]] | None:
    """Ask the other shards which groups read which topics; None where one does not say."""
    from imago_broker.shard_work import errors, readers  # noqa: PLC0415  aiohttp, on a full disk alone

    try:
        return await readers.elsewhere(services)
    except errors.AdminError as error:
        logger.warning("readers_unknown reason=%s No unexpired message goes.", error)
        return None


def _replica(registry: Registry) -> int:
    registered = registry.registered
    return 0 if registered is None else registered.replica


async def _replicated(messages: MessageService) -> str:
    waiting: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

    def done(_: object, status: PutStatus, __: object) -> None:
        if not waiting.done():
            waiting.set_result(status)

    messages.acknowledgements.when_replicated(done, None)
    status = await waiting
    return "" if status is PutStatus.OK else f"the shard answers {status.value}"


def _members(clients: ClientRegistry, group: str) -> list[GroupMember]:
    consumers = clients.consumers(group)
    if consumers is None:
        return []
    members = (consumers.member(client_id) for client_id in consumers.client_ids)
    return [
        GroupMember(member.client_id, member.channel.peer, member.language.name, member.version)
        for member in members
        if member is not None
    ]
