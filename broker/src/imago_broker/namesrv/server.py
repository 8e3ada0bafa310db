"""The name service as a server: its table of request codes, and its own process.

Inside a broker the assembly serves `NameService.table` on the name service's port. As a process,
`run` does the same over a coordinator that only reads the registry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from imago_broker.model.registry.seen import ViewAt
from imago_broker.namesrv.delayed_answers import Later
from imago_broker.namesrv.foreign import ForeignBrokers
from imago_broker.namesrv.name_settings import NameSettings
from imago_broker.namesrv.requests import NameProcessor
from imago_broker.processors.rocketmq.exchange import Lane
from imago_broker.processors.rocketmq.rows import Row, Table, build_table
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from imago_broker.model.registry.seen import Viewed
    from imago_broker.namesrv.settings import NameServiceConfig
    from imago_broker.ports import Clock, Coordinator
    from imago_broker.processors.rocketmq.exchange import Hook


SWEEP_SECONDS = 5.0


class Serving(Protocol):
    """A listening port that can be stopped."""

    port: int

    async def stop(self) -> None: ...


Serve = Callable[[Table, str, int], Awaitable[Serving]]
"""(table, host, port): listen there with remoting sessions over the table. The command line passes
what `imago_broker.server` has; this package does not know servers."""


class NameService:
    """Answers name-service requests out of the coordinator's last snapshot."""

    def __init__(
        self,
        config: NameServiceConfig,
        coordinator: Coordinator,
        clock: Clock,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self._later = Later()
        self._settings, self._coordinator, self._hooks = NameSettings(config), coordinator, hooks
        self._foreign = ForeignBrokers(self._settings, coordinator, clock, self._later)
        self.table = self._table(coordinator)

    def table_at(self, listener: str) -> Table:
        """Return what tells clients the addresses of another listener, and is else the same."""
        return self._table(ViewAt(self._coordinator, listener))

    def _table(self, seen: Viewed) -> Table:
        names = NameProcessor(
            settings=self._settings,
            registry=self._coordinator,
            marks=self._coordinator.marks,
            pipeline_records=self._coordinator.pipelines,
            foreign=self._foreign,
            later=self._later,
            seen=seen,
        )
        return build_table(_rows(names, self._foreign), self._hooks)

    def sweep(self) -> None:
        """Forget foreign brokers that fell silent: call it every few seconds."""
        self._foreign.sweep()

    def leave(self) -> None:
        """Note that this process is about to close its connections."""
        self._foreign.leave()

    async def stop(self) -> None:
        """Give up what waits for the registry. Serve nothing afterwards."""
        await self._later.stop()


def _rows(names: NameProcessor, foreign: ForeignBrokers) -> list[Row]:
    # RocketMQ 5 keeps routes apart from everything else, so that tools cannot delay clients.
    clients, tools = Lane("route", 50_000), Lane("default", 10_000)
    return [
        Row(Code.GET_ROUTEINFO_BY_TOPIC, names.route, clients),
        Row(Code.GET_BROKER_CLUSTER_INFO, names.cluster_info, tools),
        Row(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, names.all_topics, tools),
        Row(Code.GET_TOPICS_BY_CLUSTER, names.topics_of_cluster, tools),
        Row(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, names.system_topics, tools),
        Row(Code.GET_UNIT_TOPIC_LIST, names.unit_topics, tools),
        Row(Code.GET_HAS_UNIT_SUB_TOPIC_LIST, names.unit_subscription_topics, tools),
        Row(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, names.ununit_subscription_topics, tools),
        Row(Code.REGISTER_TOPIC_IN_NAMESRV, names.register_topic, tools),
        Row(Code.DELETE_TOPIC_IN_NAMESRV, names.delete_topic, tools),
        Row(Code.WIPE_WRITE_PERM_OF_BROKER, names.wipe_write, tools),
        Row(Code.ADD_WRITE_PERM_OF_BROKER, names.add_write, tools),
        Row(Code.PUT_KV_CONFIG, names.put_kv, tools),
        Row(Code.GET_KV_CONFIG, names.get_kv, tools),
        Row(Code.DELETE_KV_CONFIG, names.delete_kv, tools),
        Row(Code.GET_KVLIST_BY_NAMESPACE, names.list_kv, tools),
        Row(Code.GET_NAMESRV_CONFIG, names.get_settings, tools),
        Row(Code.UPDATE_NAMESRV_CONFIG, names.set_settings, tools),
        Row(Code.REGISTER_BROKER, foreign.register, tools),
        Row(Code.UNREGISTER_BROKER, foreign.unregister, tools),
        Row(Code.QUERY_DATA_VERSION, foreign.query_data_version, tools),
        Row(Code.BROKER_HEARTBEAT, foreign.heartbeat, tools),
        Row(Code.GET_BROKER_MEMBER_GROUP, names.member_group, tools),
    ]


async def run(
    config: NameServiceConfig,
    *,
    coordinator: Coordinator,
    clock: Clock,
    serve: Serve,
    stop: asyncio.Event,
    hooks: Sequence[Hook] = (),
) -> int:
    """Serve until `stop` is set; return the process's exit code (0). The coordinator is started
    and stopped here."""
    await coordinator.start()
    service = NameService(config, coordinator, clock, hooks)
    try:
        serving = await serve(service.table, config.host, config.port)
        try:
            await _until(stop, service.sweep)
        finally:
            service.leave()
            await serving.stop()
    finally:
        await service.stop()
        await coordinator.stop()
    return 0


async def _until(stop: asyncio.Event, sweep: Callable[[], None]) -> None:
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), SWEEP_SECONDS)
        sweep()
