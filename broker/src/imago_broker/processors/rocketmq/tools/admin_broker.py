"""Administration of the broker itself: settings, figures, clean-up, raw queue entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.tools.original_settings import PERMISSION
from imago_broker.processors.rocketmq.tools.shard_permission import is_writable
from imago_broker.service.figures.usage import Usage
from imago_wire.record_format.tags import tag_code
from imago_wire.records.record import decode_record
from imago_wire.remoting.bodies.route import KvTable
from imago_wire.remoting.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
)
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.admin import (
    GetBrokerConfigResponseHeader,
    QueryConsumeQueueRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from imago_wire.remoting.texts.properties_text import decode_properties_text, encode_properties_text

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.tools.original_settings import BrokerSettings
    from imago_broker.processors.rocketmq.tools.runtime_info import RuntimeFigures
    from imago_broker.processors.rocketmq.tools.shard_permission import ShardPermission
    from imago_broker.service.figures.usage import UsageFigures
    from imago_broker.service.topics.topics import TopicService
    from imago_broker.service.topics.versions import TableVersion
    from imago_log.store import MessageStore

QUEUE_ENTRIES_MAX = 1000
NS_PER_MS = 1_000_000


@dataclass(slots=True, eq=False, kw_only=True)
class BrokerAdmin:
    """The request codes about the broker."""

    store: MessageStore
    topics: TopicService
    topic_version: TableVersion
    settings: BrokerSettings
    permission: ShardPermission
    figures: RuntimeFigures
    usage: UsageFigures

    def get_config(self, exchange: Exchange) -> Reply:
        """GET_BROKER_CONFIG: all of RocketMQ's settings."""
        version = self.topic_version.body(exchange.command.version)
        header = GetBrokerConfigResponseHeader(version=version.encode().decode())
        return Reply(ext=header.to_ext(), body=encode_properties_text(self.settings.entries()))

    def update_config(self, exchange: Exchange) -> Reply | None:
        """UPDATE_BROKER_CONFIG: all of it, or nothing where one name or value is wrong."""
        entries = decode_properties_text(exchange.command.body)
        if not entries:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        permission = entries.pop(PERMISSION, None)
        writable = None if permission is None else is_writable(permission)
        if writable is None:
            self.settings.change(entries)
            return OK
        self.settings.check(entries)
        self.permission.change(exchange, writable, lambda: self.settings.change(entries))
        return None

    def runtime_info(self, _: Exchange) -> Reply:
        """GET_BROKER_RUNTIME_INFO."""
        return Reply(body=KvTable(table=self.figures.table()).encode())

    def stats(self, exchange: Exchange) -> Reply:
        """VIEW_BROKER_STATS_DATA: how much a counter has grown in a minute, an hour, a day."""
        header = ViewBrokerStatsDataRequestHeader.from_ext(exchange.ext)
        name, key, unit = header.stats_name, header.stats_key, 1
        counted = Usage.__members__.get(name)
        if counted is Usage.GROUP_GET_LATENCY:  # its key has a queue in front: they are told as one
            key, unit = key.partition("@")[2], NS_PER_MS
        lately = None if counted is None else self.usage.lately(counted, key)
        if lately is None:
            text = f"The stats <{name}> <{header.stats_key}> not exist"
            raise RequestError(ResponseCode.SYSTEM_ERROR, text)
        minute, hour, day = (
            BrokerStatsItem(sum=one.total // unit, tps=one.per_second / unit, avgpt=one.each / unit)
            for one in lately
        )
        return Reply(
            body=BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day).encode()
        )

    def clean_up(self, _: Exchange) -> Reply:
        """CLEAN_EXPIRED_CONSUMEQUEUE and others: the store cleans by itself, all the time."""
        return OK

    def queue_entries(self, exchange: Exchange) -> Reply:
        """QUERY_CONSUME_QUEUE: entries of a queue, for people who look for a mistake."""
        header = QueryConsumeQueueRequestHeader.from_ext(exchange.ext)
        topic, queue_id = header.topic or "", header.queue_id or 0
        config = self.topics.get(topic)
        if config is None or not 0 <= queue_id < config.queues:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        store = self.store
        low, high = store.queue_range(topic, queue_id)
        index = header.index or 0
        entries: list[ConsumeQueueData] = []
        if low <= index < high:
            count = max(1, min(header.count or 1, QUEUE_ENTRIES_MAX))
            found = store.read(topic, queue_id, index, messages_max=count, bytes_max=4 << 20)
            entries = _entries(found.body)
        body = QueryConsumeQueueResponseBody(
            max_queue_index=high, min_queue_index=low, queue_data=tuple(entries)
        )
        remark = None if entries else f"Index {index} of {queue_id}@{topic} is not exist!"
        return Reply(remark=remark, body=body.encode())


def _entries(records: bytes) -> list[ConsumeQueueData]:
    entries: list[ConsumeQueueData] = []
    at = 0
    while at < len(records):
        message = decode_record(records, at, verify=False)
        tags = message.tags
        entries.append(
            ConsumeQueueData(
                physic_offset=message.physical_offset,
                physic_size=message.size,
                tags_code=tag_code(tags.encode() if tags else None),
            )
        )
        at += message.size
    return entries
