"""What the admin interface asks of the broker's parts."""

from __future__ import annotations

import asyncio
import importlib.metadata
from typing import TYPE_CHECKING, Protocol

from imago_broker.admin.services import AdminServices, Counters, GroupMember, MetaqManagement
from imago_broker.app.alone import AloneShard
from imago_broker.metrics import registry
from imago_broker.model.cluster import RegistryConnection
from imago_broker.service.put_status import PutStatus
from imago_wire import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app.core_services import CoreServices
    from imago_broker.app.listeners import Ports
    from imago_broker.app.metaq_port import ConfigFile, MetaqPort
    from imago_broker.app.process_hooks import ProcessHooks
    from imago_broker.app.reloading import ConfigSource
    from imago_broker.app.shard_member import ShardMember
    from imago_broker.config import BrokerConfig
    from imago_broker.errors import FatalError
    from imago_broker.metrics import BrokerCollector, MetaqCounters
    from imago_broker.ports import Clock, Coordinator, Registry
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.replication.metaq.slave import MetaqSlave
    from imago_broker.service.clients import ClientRegistry
    from imago_broker.service.gate import ShardGate
    from imago_broker.service.messages import MessageService
    from imago_log.results import StoreHealth


class BrokerState(Protocol):
    """What changes of a broker while it runs."""

    config: BrokerConfig
    gate: ShardGate | None
    serving: bool
    failed: asyncio.Future[FatalError]
    first_log_end: int
    metaq: MetaqPort | None
    metaq_slave: MetaqSlave | None
    process: ProcessHooks
    source: ConfigSource
    config_file: ConfigFile

    @property
    def health(self) -> StoreHealth: ...


def admin_services(
    state: BrokerState,
    *,
    core: CoreServices,
    rocketmq: RocketmqAssembly,
    metaq_counters: MetaqCounters,
    coordinator: Coordinator,
    clock: Clock,
    collector: BrokerCollector,
    member: ShardMember | None,
    uuid: str,
    ports: Ports,
    replace_config: Callable[[BrokerConfig], None],
) -> AdminServices:
    """Hand the parts over; `member`: None where the shard is shared with nobody."""
    messages, store = core.messages, core.messages.store
    alone = AloneShard(
        lambda: store.epoch_seen, lambda: "" if state.serving else "the broker to serve"
    )
    return AdminServices(
        current_config=lambda: state.config,
        replace_config=replace_config,
        topics=core.topics,
        groups=core.groups,
        access=core.access,
        quotas=core.quotas,
        offsets=core.offsets,
        reset_offsets=rocketmq.clients.resetter.reset,
        metaq_transactions=core.metaq_transactions,
        store=store,
        coordinator=coordinator,
        marks=coordinator.marks,
        pipelines=coordinator.pipelines,
        metaq_consumers=coordinator.metaq_consumers,
        clock=clock,
        peer_tls=lambda: ports.peer_tls,
        registry=registry(collector),
        control=member or alone,
        uuid=uuid,
        replica=lambda: _replica(coordinator),
        health=lambda: state.health,
        problems=lambda: problems(state, member),
        write_problems=lambda: write_problems(state, coordinator),
        connections=lambda: {
            "metaq": ports.metaq.connections,
            "rocketmq": ports.rocketmq.connections + ports.fast.connections,
            "namesrv": ports.names.connections,
        },
        counters=lambda: Counters(
            messages_in=messages.appended,
            messages_out=rocketmq.delivery.traffic.messages,
            bytes_in=store.log_end - state.first_log_end,
            bytes_out=rocketmq.delivery.traffic.bytes + metaq_counters.bytes_out,
        ),
        replicated=lambda: _replicated(messages),
        members=lambda group: _members(rocketmq.clients.registry, group),
        member_groups=lambda: sorted(rocketmq.clients.registry.consumer_groups()),
        metaq=MetaqManagement(
            stats=None if state.metaq is None else state.metaq.stats,
            run=None if state.metaq is None else state.metaq.run,
            config_file=state.config_file,
            reload=state.source.reload,
            slave=state.metaq_slave,
            stop=state.process.stop,
        ),
        on_topic_made=rocketmq.names.on_topic_made,
        version=importlib.metadata.version("imago-mq"),
        not_compiled=None if compiled.PURE else compiled.missing,
    )


def problems(state: BrokerState, member: ShardMember | None) -> list[str]:
    """Return why clients should not be sent here; empty when they should.

    A broker that takes no messages for now still has routes and messages to read, which may be
    nowhere else: a full disk, or a registry that is away, concerns all members alike.
    """
    found = []
    if not state.serving:
        found.append("the broker is starting or stopping")
    if state.failed.done():
        found.append(f"the broker has failed: {state.failed.result()}")
    if member is not None:
        found += member.unready()
    return found


def write_problems(state: BrokerState, registry: Registry) -> list[str]:
    """Return why messages may be refused here although clients are sent here.

    Not that this member does not lead: its shard takes them elsewhere.
    """
    found = []
    health, gate = state.health, state.gate
    if not health.writable:
        found.append(f"the disk is full: {health.disk_used_ratio:.0%} used")
    if registry.state is not RegistryConnection.CONNECTED:
        found.append(f"the registry is {registry.state.value}")
    if gate is not None and gate.short:
        found.append("too few members are in sync for messages that wait for them")
    return found


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
