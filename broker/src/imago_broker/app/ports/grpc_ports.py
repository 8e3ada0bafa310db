"""Putting the port of RocketMQ 5's SDKs together, over what serves RocketMQ's other clients."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.app.ports.connection_limits import grpc_limits
from imago_broker.features.catalogue import popping_of
from imago_broker.model.registry.seen import ViewAt
from imago_broker.processors.grpc.asking import TableAsker
from imago_broker.processors.grpc.authentication import CallUsers
from imago_broker.processors.grpc.clients import SdkClients
from imago_broker.processors.grpc.consuming.acknowledging import AckCalls
from imago_broker.processors.grpc.consuming.fast_path import FastPath
from imago_broker.processors.grpc.consuming.plain_acks import PlainAcks
from imago_broker.processors.grpc.consuming.receiving import LiteReaders, PlainPops, ReceiveCalls
from imago_broker.processors.grpc.lite_topics import LiteCalls
from imago_broker.processors.grpc.plain_sends import PlainSends
from imago_broker.processors.grpc.recalling import RecallCalls
from imago_broker.processors.grpc.routes import Here, RouteCalls
from imago_broker.processors.grpc.sending import SendCalls
from imago_broker.processors.grpc.service import ConsumerCalls, GrpcService, ProducerCalls
from imago_broker.processors.grpc.transactions import TransactionCalls
from imago_broker.server.client_ports import CONNECTS_MAX
from imago_broker.server.grpc.grpc_port import GrpcPort
from imago_broker.server.grpc.grpc_relay import GrpcRelays
from imago_broker.server.grpc.grpc_session import GrpcSession
from imago_broker.server.relay.relay import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app.ports.entrances import Entrance
    from imago_broker.app.ports.listeners import Ports
    from imago_broker.config import BrokerConfig
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.server.listener import Listener
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.role import ShardRole
    from imago_broker.service.topics.topics import TopicService

TICK_SECONDS = 5.0


def serve_grpc(
    ports: Ports,
    config: BrokerConfig,
    parts: RocketmqAssembly,
    table: Table,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Have a bound listener speak gRPC; `table` serves what its calls become."""
    broker, identity = parts.broker, parts.identity
    clock, topics, groups = broker.clock, broker.topics, broker.groups
    asker = TableAsker(table)
    authentication = CallUsers(broker.access, enabled=config.acl.enabled)

    def body_bytes_max() -> int:
        return parts.settings.current.message_bytes_max

    def here() -> Here:
        port = config.rocketmq.grpc_advertised_port or ports.grpc_port
        return Here(identity.broker_name, identity.host, port)

    pop = popping_of(parts)
    role = broker.serving_rules.role
    clients = SdkClients(
        asker=asker,
        registry=parts.clients.registry,
        groups=groups,
        clock=clock,
        loop=loop,
        renewals=pop.renewals,
        body_bytes_max=body_bytes_max,
        may=authentication.may,
        lite_gone=pop.lite.forget,
    )
    routes = RouteCalls(broker.registry, topics, groups, here, lambda: role.leads)
    acks = AckCalls(asker, clock, broker_name=identity.broker_name, out=pop.receipts)
    producing = ProducerCalls(
        sends=SendCalls(asker, topics, clock, body_bytes_max),
        plain_sends=PlainSends(
            authentication, table, broker.messages, topics.handles, parts.settings, identity.cluster
        ),
        recalls=RecallCalls(
            asker,
            topics,
            broker.others,
            loop,
            broker_name=identity.broker_name,
            leads=lambda: role.leads,
        ),
        transactions=TransactionCalls(asker, broker.messages, clock),
    )
    consuming = ConsumerCalls(
        receives=ReceiveCalls(
            topics,
            groups,
            acks=acks,
            renewals=pop.renewals,
            lite=LiteReaders(clients.wants_lite, pop.lite.of),
            plain=PlainPops(FastPath(authentication, table, "pull"), pop.short),
        ),
        acks=acks,
        plain_acks=PlainAcks(
            FastPath(authentication, table, "client"),
            pop.receipts,
            clock,
            broker_name=identity.broker_name,
        ),
        lite=LiteCalls(
            asker,
            broker.others,
            loop,
            routes.brokers_of,
            routes.type_of,
            broker_name=identity.broker_name,
        ),
    )
    service = GrpcService(
        authentication, clients=clients, routes=routes, producing=producing, consuming=consuming
    )

    def role_changed(current: ShardRole) -> None:
        if not current.leads:
            clients.reconnect()

    role.on_change.append(role_changed)

    _serve(ports, config, parts, service, RouteParts(topics, groups, lambda: role.leads))

    def tick() -> None:
        if ports.grpc.stopped:
            return
        clients.tick()
        pop.renewals.tick()
        loop.call_later(TICK_SECONDS, tick)

    loop.call_later(TICK_SECONDS, tick)


class RouteParts(NamedTuple):
    """What tells clients of all listeners where things are."""

    topics: TopicService
    groups: GroupService
    leads: Callable[[], bool]


def _serve(
    ports: Ports,
    config: BrokerConfig,
    parts: RocketmqAssembly,
    service: GrpcService,
    routing: RouteParts,
) -> None:
    """Have the port, and those of further listeners, serve; each leads to its own."""

    def serve(
        listener: Listener, calls: GrpcService, port_of: Callable[[BrokerRecord], int]
    ) -> None:
        port = GrpcPort(
            calls,
            limits=grpc_limits(config),
            budget=parts.broker.budget,
            input_budget=ports.input_budget,
            relays=_relays(ports, config, parts, port_of),
        )
        listener.serve(partial(GrpcSession, port))

    def here(entrance: Entrance) -> Here:
        host = ports.told_hosts.of(entrance)
        return Here(parts.identity.broker_name, host, entrance.told("grpc"))

    serve(ports.grpc, service, lambda record: record.grpc)
    for entrance in ports.entrances:
        if (listener := entrance.ports.get("grpc")) is not None:
            seen = ViewAt(parts.broker.registry, entrance.name)
            routes = RouteCalls(
                seen, routing.topics, routing.groups, partial(here, entrance), routing.leads
            )
            serve(listener, service.with_routes(routes), entrance.grpc_of)


def _relays(
    ports: Ports,
    config: BrokerConfig,
    parts: RocketmqAssembly,
    port_of: Callable[[BrokerRecord], int],
) -> GrpcRelays:
    """Return what passes connections on while another member is the master."""
    role, registry = parts.broker.serving_rules.role, parts.broker.registry

    def master() -> Address | None:
        if role.leads:
            return None
        leader = registry.view().master(config.broker.shard)
        if leader is None or not port_of(leader) or leader.uuid == ports.record().uuid:
            return None
        return Address(leader.host, port_of(leader))

    return GrpcRelays(
        master,
        connects=asyncio.Semaphore(CONNECTS_MAX),
        places=ports.places,
        certificates=lambda: ports.certificates,
        introductions=ports.introductions,
    )
