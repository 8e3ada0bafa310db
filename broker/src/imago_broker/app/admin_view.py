"""What the admin interface is told of the broker's parts."""

from __future__ import annotations

import asyncio
import importlib.metadata
from typing import TYPE_CHECKING

from imago_broker.admin.services import AdminServices, Counters, GroupMember
from imago_broker.app.alone import AloneShard
from imago_broker.metrics import registry
from imago_broker.model.cluster import RegistryConnection
from imago_broker.processors.rocketmq.resetting import reset_offsets
from imago_broker.service.put_status import PutStatus
from imago_wire.hot import COMPILED

if TYPE_CHECKING:
    from imago_broker.app.broker import Broker


def admin_services(broker: Broker) -> AdminServices:
    """Hand the parts over. Callables read the broker at each call."""
    return AdminServices(
        current_config=lambda: broker.config,
        replace_config=broker.apply,
        topics=broker.topics,
        groups=broker.groups,
        offsets=broker.offsets,
        reset_offsets=lambda group, topic, targets: reset_offsets(
            broker.rocketmq, group, topic, targets
        ),
        store=broker.store,
        coordinator=broker.coordinator,
        clock=broker.clock,
        registry=registry(broker.collector),
        control=broker.member
        or AloneShard(
            lambda: broker.store.epoch, lambda: "" if broker.serving else "the broker to serve"
        ),
        uuid=broker.uuid,
        replica=lambda: _replica(broker),
        health=lambda: broker.health,
        problems=lambda: problems(broker),
        write_problems=lambda: write_problems(broker),
        connections=lambda: {
            "metaq": broker.ports.metaq.connections,
            "rocketmq": broker.ports.rocketmq.connections + broker.ports.fast.connections,
            "namesrv": broker.ports.names.connections,
        },
        counters=lambda: _counters(broker),
        replicated=lambda: _replicated(broker),
        members=lambda group: _members(broker, group),
        member_groups=lambda: sorted(broker.rocketmq.clients.consumer_groups()),
        on_topic_made=broker.rocketmq.on_topic_made,
        version=importlib.metadata.version("imago-mq"),
        compiled=COMPILED,
    )


def problems(broker: Broker) -> list[str]:
    """Return why clients should not be sent here; empty when they should.

    A broker that takes no messages for now still has routes and messages to read, which may be
    nowhere else: a full disk, or a registry that is away, concerns all members alike.
    """
    found = []
    if not broker.serving:
        found.append("the broker is starting or stopping")
    if broker.failed.done():
        found.append(f"the broker has failed: {broker.failed.result()}")
    if broker.member is not None:
        found += broker.member.unready()
    return found


def write_problems(broker: Broker) -> list[str]:
    """Return why messages may be refused here although clients are sent here."""
    found = []
    if not broker.health.writable:
        found.append(f"the disk is full: {broker.health.disk_used_ratio:.0%} used")
    if broker.coordinator.state is not RegistryConnection.CONNECTED:
        found.append(f"the registry is {broker.coordinator.state.value}")
    return found


def _replica(broker: Broker) -> int:
    registered = broker.coordinator.registered
    return 0 if registered is None else registered.replica


def _counters(broker: Broker) -> Counters:
    metaq, traffic = broker.metaq_counters, broker.rocketmq.traffic
    return Counters(
        messages_in=broker.messages.appended,
        messages_out=traffic.messages,
        bytes_in=broker.store.log_end - broker.first_log_end,
        bytes_out=traffic.bytes + metaq.bytes_out,
    )


async def _replicated(broker: Broker) -> str:
    waiting: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

    def done(_: object, status: PutStatus, __: object) -> None:
        if not waiting.done():
            waiting.set_result(status)

    broker.messages.when_replicated(done, None)
    status = await waiting
    return "" if status is PutStatus.OK else f"the shard answers {status.value}"


def _members(broker: Broker, group: str) -> list[GroupMember]:
    consumers = broker.rocketmq.clients.consumers(group)
    if consumers is None:
        return []
    members = (consumers.member(client_id) for client_id in consumers.client_ids)
    return [
        GroupMember(member.client_id, member.channel.peer, member.language.name, member.version)
        for member in members
        if member is not None
    ]
