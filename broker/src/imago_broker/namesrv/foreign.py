"""Brokers that are not ours and register here: kept as long as their connection, or their word.

They live in the registry under this process's session. The connection over which a broker
registered is its life line: when it closes, the broker is gone at once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import ForeignBroker
from imago_broker.model.registry.foreign import bytes_of
from imago_broker.namesrv import name_settings, routes, smallest_ids
from imago_broker.ports import CoordinatorError, CoordinatorUnavailableError
from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_wire.remoting.bodies.config import DataVersion, TopicConfig
from imago_wire.remoting.bodies.register import decode_register_body
from imago_wire.remoting.bodies.route import KvTable
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from imago_broker.namesrv.delayed_answers import Later
    from imago_broker.namesrv.name_settings import NameSettings
    from imago_broker.ports import Clock, Registry
    from imago_broker.service.groups.channel import Channel
    from imago_wire.remoting.bodies.route import QueueData

log = logging.getLogger(__name__)

LIFE_MS = 120_000
"""How long a registration counts that names no time of its own; brokers repeat it every 30 s."""
LIFE_MS_MAX = 3_600_000
BROKERS_MAX = 1000
CONNECTION_BROKERS_MAX = 64
"""Registered over one connection; a process has one for each of its brokers."""
HELD_BYTES_MAX = 256 << 20
"""Of the tables of all brokers that are connected here."""

Key = tuple[str, str, int]


@dataclass(slots=True)
class _Held:
    """A foreign broker whose connection is ours."""

    broker: ForeignBroker
    channel: Channel
    life_ms: int
    seen_ms: int
    watcher: Callable[[], None]
    size: int
    """About how many bytes its topics take."""


class ForeignBrokers:
    """The foreign brokers that are connected to this process."""

    def __init__(
        self, settings: NameSettings, registry: Registry, clock: Clock, later: Later
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._clock = clock
        self._later = later
        self._held: dict[Key, _Held] = {}
        self._leaving = False

    def leave(self) -> None:
        """Tell nobody any more who is gone: it is this process that closes connections now."""
        self._leaving = True

    def register(self, exchange: Exchange) -> Reply | None:
        """REGISTER_BROKER: note the broker and its topics, tell a slave where its master is."""
        header = RegisterBrokerRequestHeader.from_ext(exchange.ext)
        if routes.is_own(self._registry.view(), header.broker_name):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"broker name {header.broker_name} belongs to this cluster's own brokers",
            )
        broker = self._broker(exchange, header)
        life_ms = min(header.heartbeat_timeout_millis or LIFE_MS, LIFE_MS_MAX)
        members = self._members(broker)
        self._hold(exchange.channel, broker, life_ms)
        self._tell(smallest_ids.joined(members, broker), broker, ha_address=broker.ha_address)
        self._later.answer(exchange, self._put(broker), lambda: self._registered(broker))
        return None

    def unregister(self, exchange: Exchange) -> Reply | None:
        """UNREGISTER_BROKER: the broker stops in order."""
        header = UnRegisterBrokerRequestHeader.from_ext(exchange.ext)
        key = (header.cluster_name, header.broker_name, header.broker_id)
        if key not in self._held:
            return Reply()  # what is not registered here is gone already
        self._leave(key)
        self._later.answer(exchange, self._registry.remove_foreign(key), Reply)
        return None

    def query_data_version(self, exchange: Exchange) -> Reply:
        """QUERY_DATA_VERSION: whether the broker's topics are the ones that we have."""
        header = QueryDataVersionRequestHeader.from_ext(exchange.ext)
        told = DataVersion.decode(exchange.command.body).to_json()
        key = (header.cluster_name, header.broker_name, header.broker_id)
        known = self._known(key)
        changed = known is None or dict(known.data_version) != told
        if not changed:
            self._beat(key)
        body = b"" if known is None else DataVersion.from_json(dict(known.data_version)).encode()
        return Reply(ext={"changed": "true" if changed else "false"}, body=body)

    def heartbeat(self, exchange: Exchange) -> Reply:
        """BROKER_HEARTBEAT of 5.x: the broker lives."""
        header = BrokerHeartbeatRequestHeader.from_ext(exchange.ext)
        self._beat((header.cluster_name, header.broker_name, header.broker_id or 0))
        return Reply()

    def drop_topic(self, topic: str, cluster: str | None) -> list[ForeignBroker]:
        """Return the brokers connected here, without a topic, that had it."""
        changed = []
        for held in self._held.values():
            broker = held.broker
            if topic in broker.topics and cluster in (None, "", broker.cluster):
                kept = {name: c for name, c in broker.topics.items() if name != topic}
                held.broker = replace(broker, topics=kept)
                changed.append(held.broker)
        return changed

    def with_topic(self, topic: str, queues: Iterable[QueueData]) -> list[ForeignBroker]:
        """Return the brokers connected here, with what somebody says of a topic of theirs."""
        by_name, changed = {one.broker_name: one for one in queues}, []
        for held in self._held.values():
            told = by_name.get(held.broker.broker_name)
            if told is None:
                continue
            config = TopicConfig(
                topic_name=topic,
                perm=told.perm,
                read_queue_nums=told.read_queue_nums,
                write_queue_nums=told.write_queue_nums,
                topic_sys_flag=told.topic_sys_flag,
            )
            topics = {**held.broker.topics, topic: config.to_json()}
            held.broker = replace(held.broker, topics=topics)
            held.size = bytes_of(topics)
            changed.append(held.broker)
        return changed

    def sweep(self) -> None:
        """Remove brokers that have been silent longer than they said."""
        now_ms = self._clock.monotonic_ms()
        for key, held in list(self._held.items()):
            if now_ms - held.seen_ms > held.life_ms:
                log.info("foreign_broker_silent broker=%s id=%d", key[1], key[2])
                self._remove(key)

    def _broker(self, exchange: Exchange, header: RegisterBrokerRequestHeader) -> ForeignBroker:
        body = decode_register_body(
            exchange.command.body,
            version=exchange.command.version,
            body_crc32=header.body_crc32,
        )
        wrapper = body.topic_config_serialize_wrapper
        topics = {name: config.to_json() for name, config in wrapper.topic_config_table.items()}
        key = (header.cluster_name, header.broker_name, header.broker_id)
        known = self._known(key)
        if not topics and known is not None:
            # 4.9 brokers repeat a registration without topics when nothing changed.
            topics = {name: dict(config) for name, config in known.topics.items()}
        return ForeignBroker(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr,
            data_version=wrapper.data_version.to_json(),
            topics=topics,
            filter_servers=body.filter_server_list,
            acting_master=bool(header.enable_acting_master),
        )

    def _registered(self, broker: ForeignBroker) -> Reply:
        view = self._registry.view()
        header = RegisterBrokerResponseHeader()
        master = self._known((broker.cluster, broker.broker_name, 0))
        if broker.broker_id and master is not None:
            header = RegisterBrokerResponseHeader(
                ha_server_addr=master.ha_address, master_addr=master.address
            )
        order = view.kv.get(routes.ORDER_NAMESPACE)
        if not self._settings.allows(name_settings.ORDER_TO_BROKERS):
            order = None
        return Reply(
            ext=header.to_ext(), body=KvTable(table=dict(order)).encode() if order else b""
        )

    def _known(self, key: Key) -> ForeignBroker | None:
        held = self._held.get(key)
        if held is not None:
            return held.broker
        return next((b for b in self._registry.view().foreign if b.key == key), None)

    async def _put(self, broker: ForeignBroker) -> None:
        try:
            await self._registry.put_foreign(broker)
        except CoordinatorUnavailableError:
            raise  # it is written when the registry answers again
        except CoordinatorError:
            held = self._held.get(broker.key)
            if held is not None and held.broker is broker:
                self._release(broker.key)
            raise

    def _hold(self, channel: Channel, broker: ForeignBroker, life_ms: int) -> None:
        key, size = broker.key, bytes_of(broker.topics)
        others = [held for known, held in self._held.items() if known != key]
        if len(others) >= BROKERS_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"{BROKERS_MAX} brokers are registered here already"
            )
        if sum(held.channel is channel for held in others) >= CONNECTION_BROKERS_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{CONNECTION_BROKERS_MAX} brokers are registered over this connection already",
            )
        if sum(held.size for held in others) + size > HELD_BYTES_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the topics of all brokers that are registered here take {HELD_BYTES_MAX} bytes"
                " at most",
            )
        self._release(key)

        def closed() -> None:
            log.info("foreign_broker_gone broker=%s id=%d", key[1], key[2])
            self._remove(key)

        channel.watch(closed)
        self._held[key] = _Held(broker, channel, life_ms, self._clock.monotonic_ms(), closed, size)

    def _release(self, key: Key) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            held.channel.unwatch(held.watcher)

    def _remove(self, key: Key) -> None:
        self._leave(key)
        self._later.run(self._registry.remove_foreign(key))

    def _leave(self, key: Key) -> None:
        """Forget a broker that is gone, and tell those of its name that stay."""
        held = self._held.get(key)
        self._release(key)
        if held is not None:
            members = self._members(held.broker)
            told = smallest_ids.left(members, held.broker)
            if told:
                self._tell(told, members[min(members)], gone=held.broker.address)

    def _members(self, broker: ForeignBroker) -> dict[int, ForeignBroker]:
        """Return the brokers of its name that are connected here, by id."""
        named = (broker.cluster, broker.broker_name)
        return {key[2]: held.broker for key, held in self._held.items() if key[:2] == named}

    def _tell(
        self,
        brokers: Sequence[ForeignBroker],
        smallest: ForeignBroker,
        *,
        gone: str = "",
        ha_address: str = "",
    ) -> None:
        wanted = self._settings.allows(name_settings.SMALLEST_IDS) and not self._leaving
        if brokers and wanted:
            frame = smallest_ids.notice(smallest, gone=gone, ha_address=ha_address)
            self._later.run(smallest_ids.tell(brokers, frame))

    def _beat(self, key: Key) -> None:
        held = self._held.get(key)
        if held is not None:
            held.seen_ms = self._clock.monotonic_ms()
