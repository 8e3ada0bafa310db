"""Putting the RocketMQ ports and the name service's together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.app.access import broker_hooks, known_settings, name_hooks
from imago_broker.app.member.identity import data_folder_uuid
from imago_broker.app.ports.connection_limits import remoting_limits
from imago_broker.app.ports.grpc_ports import serve_grpc
from imago_broker.features.catalogue import BROKER_RIGHTS, LIMITED, install
from imago_broker.namesrv.server import NameService
from imago_broker.namesrv.settings import NameServiceConfig
from imago_broker.processors.rocketmq.assembly import BrokerParts, assemble
from imago_broker.processors.rocketmq.identity import RocketmqIdentity
from imago_broker.processors.rocketmq.table import build_processors
from imago_broker.server.broker_calls import MasterCalls
from imago_broker.server.remoting.remoting_server import RemotingServer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from imago_broker.app.core_services import CoreServices
    from imago_broker.app.member.shard_worker import ShardWorker
    from imago_broker.app.ports.listeners import Ports
    from imago_broker.config import BrokerConfig
    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.ports import Clock, Coordinator, ToldEntries
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.service.serving_rules import ServingRules


def assemble_rocketmq(
    config: BrokerConfig,
    core: CoreServices,
    *,
    clock: Clock,
    loop: asyncio.AbstractEventLoop,
    registry: Coordinator,
    serving_rules: ServingRules,
    host: str,
    ports: Ports,
    shards: ShardWorker,
    told: ToldEntries,
    before_settings_change: Callable[[RocketmqSection], None],
    topics_published: Callable[[], Awaitable[None]],
) -> RocketmqAssembly:
    """Put together what only RocketMQ needs. `host`: under which clients reach this broker."""

    def cluster_id() -> str:
        if config.zookeeper.connect != "none":
            return registry.view().cluster_id
        return data_folder_uuid(Path(config.broker.data_dir))  # a broker alone is a cluster

    parts = assemble(
        BrokerParts(
            config=config,
            cluster_id=cluster_id,
            clock=clock,
            loop=loop,
            registry=registry,
            serving_rules=serving_rules,
            messages=core.messages,
            topics=core.topics,
            offsets=core.offsets,
            groups=core.groups,
            access=core.access,
            quotas=core.quotas,
            pass_users_on=shards.pass_users_on,
            spread_users=shards.spread_users,
            marks=registry.marks,
            others=MasterCalls(
                registry, ways=ports.rocketmq_ways, introductions=ports.introductions
            ),
            metaq_transactions=core.metaq_transactions,
            budget=ports.budget,
            topics_published=topics_published,
        ),
        identity=RocketmqIdentity(
            cluster=config.broker.cluster,
            broker_name=config.broker_name,
            host=host,
            port=ports.told_rocketmq_port,
        ),
        settings=config.rocketmq,
        told=told,
        before_settings_change=before_settings_change,
    )
    install(parts)
    return parts


def send_wait(settings: LiveSettings[RocketmqSection]) -> Callable[[], int | None]:
    """Return what tells how long sends may wait now; None: for as long as they have to."""

    def wait_ms() -> int | None:
        current = settings.current
        return current.send_wait_ms_max if current.fast_failure else None

    return wait_ms


def serve_rocketmq(
    ports: Ports,
    config: BrokerConfig,
    parts: RocketmqAssembly,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Have the bound listeners speak RocketMQ's protocols over the same parts."""
    hooks = broker_hooks(
        config,
        parts.broker.access,
        parts.broker.messages,
        parts.broker.quotas,
        rights=BROKER_RIGHTS,
        limited=LIMITED,
        known=known_settings(parts.broker.topics, parts.broker.groups),
    )
    processors = build_processors(parts, loop, hooks)
    if hooks:
        # What is held was allowed once: it is asked for again, and checked again.
        parts.broker.access.on_change.append(parts.answer_held)
    limits = remoting_limits(config)
    served = [(ports.rocketmq, processors.main), (ports.fast, processors.fast)]
    served += [
        (
            entrance.ports["rocketmq"],
            replace(processors.main, serving_rules=parts.broker.serving_rules.at(entrance.name)),
        )
        for entrance in ports.entrances
        if "rocketmq" in entrance.ports
    ]
    for listener, table in served:
        server = RemotingServer(
            table=table,
            loop=loop,
            send_path=processors.send_path,
            pull_path=processors.pull_path if table is not processors.fast else None,
            on_close=parts.clients.registry.closed,
            on_drain=parts.delivery.hold.release_all,
            send_wait_ms=send_wait(parts.settings),
            limits=limits,
            budget=parts.broker.budget,
            input_budget=ports.input_budget,
        )
        parts.broker.messages.acknowledgements.on_completed(server.flush)
        listener.serve(server.session)
    if config.grpc_port >= 0:
        serve_grpc(ports, config, parts, processors.main, loop)


def serve_names(
    ports: Ports,
    config: BrokerConfig,
    parts: RocketmqAssembly,
    coordinator: Coordinator,
    loop: asyncio.AbstractEventLoop,
) -> NameService:
    """Have its listeners answer the name service. Sweep it now and then; stop it at the end."""
    listener = ports.names
    settings = NameServiceConfig(host=listener.host, port=listener.port)
    hooks = name_hooks(config, parts.broker.access)
    service = NameService(settings, coordinator, parts.broker.clock, hooks)
    served = {listener: service.table}
    for entrance in ports.entrances:
        if (door := entrance.ports.get("namesrv")) is not None:
            served[door] = service.table_at(entrance.name)
    for each, table in served.items():
        server = RemotingServer(
            table=table,
            loop=loop,
            on_drain=service.leave,
            limits=remoting_limits(config),
            budget=ports.budget,
            input_budget=ports.input_budget,
        )
        each.serve(server.session)
    return service
