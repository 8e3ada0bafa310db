"""Administration of the broker itself: settings, figures, clean-up, raw queue entries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_wire.record import decode_record
from imago_wire.remoting.bodies.route import MASTER_ID, KvTable
from imago_wire.remoting.bodies.stats import ConsumeQueueData, QueryConsumeQueueResponseBody
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.admin import (
    GetBrokerConfigResponseHeader,
    QueryConsumeQueueRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from imago_wire.remoting.properties_text import decode_properties_text, encode_properties_text
from imago_wire.tags import tag_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections import RocketmqSection
    from imago_broker.ports import Registry
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.processors.rocketmq.runtime_info import RuntimeFigures
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.topics import TopicService
    from imago_broker.service.versions import TableVersion
    from imago_log.store import MessageStore

QUEUE_ENTRIES_MAX = 1000


def _positive(text: str) -> int:
    number = int(text)
    if not 0 < number <= 16 << 20:
        raise ValueError("must be 1 to 16777216")
    return number


_CHANGEABLE: dict[str, tuple[str, Callable[[str], object]]] = {
    "maxMessageSize": ("message_bytes_max", _positive),
    "transactionTimeOut": ("transaction_timeout_ms", int),
    "transactionCheckInterval": ("transaction_check_interval_ms", int),
    "transactionCheckMax": ("transaction_checks_max", int),
}
"""RocketMQ's name of a setting that may change while the broker runs: our name, its reader."""


class BrokerAdmin:
    """The request codes about the broker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicService,
        registry: Registry,
        serving_rules: ServingRules,
        topic_version: TableVersion,
        identity: RocketmqIdentity,
        settings: LiveSettings[RocketmqSection],
        figures: RuntimeFigures,
    ) -> None:
        self._store = store
        self._topics = topics
        self._registry = registry
        self._serving_rules = serving_rules
        self._topic_version = topic_version
        self._identity = identity
        self._settings = settings
        self._figures = figures

    def get_config(self, exchange: Exchange) -> Reply:
        """GET_BROKER_CONFIG: what of RocketMQ's settings has a meaning here."""
        version = self._topic_version.body(exchange.command.version)
        header = GetBrokerConfigResponseHeader(version=version.encode().decode())
        return Reply(ext=header.to_ext(), body=encode_properties_text(self._config_entries()))

    def update_config(self, exchange: Exchange) -> Reply:
        """UPDATE_BROKER_CONFIG: all of it, or nothing when one key cannot be changed."""
        entries = decode_properties_text(exchange.command.body)
        if not entries:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        settings = self._settings.current
        for key, value in entries.items():
            settings = self._changed(settings, key, value)
        self._settings.change(settings)
        return OK

    def _changed(self, settings: RocketmqSection, key: str, value: str) -> RocketmqSection:
        if key in _CHANGEABLE:
            name, read = _CHANGEABLE[key]
            try:
                return replace(settings, **{name: read(value.strip())})  # type: ignore[arg-type]  # the readers give what their field takes
            except ValueError as error:
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"{key}: {error}") from None
        if key in self._config_entries():
            raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the broker has no setting {key[:64]}")

    def runtime_info(self, _: Exchange) -> Reply:
        """GET_BROKER_RUNTIME_INFO."""
        return Reply(body=KvTable(table=self._figures.table()).encode())

    def stats(self, exchange: Exchange) -> Reply:
        """VIEW_BROKER_STATS_DATA: rates by minute and hour are kept by the metrics, not here."""
        header = ViewBrokerStatsDataRequestHeader.from_ext(exchange.ext)
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
        )

    def clean_up(self, _: Exchange) -> Reply:
        """CLEAN_EXPIRED_CONSUMEQUEUE and others: the store cleans by itself, all the time."""
        return OK

    def queue_entries(self, exchange: Exchange) -> Reply:
        """QUERY_CONSUME_QUEUE: entries of a queue, for people who look for a mistake."""
        header = QueryConsumeQueueRequestHeader.from_ext(exchange.ext)
        topic, queue_id = header.topic or "", header.queue_id or 0
        config = self._topics.get(topic)
        if config is None or not 0 <= queue_id < config.queues:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        store = self._store
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

    def _config_entries(self) -> dict[str, str]:
        identity, settings = self._identity, self._settings.current
        serving_rules, own = self._serving_rules, self._registry.registered
        replica_id = own.replica + 1 if own is not None and not serving_rules.leads else MASTER_ID
        return {
            "brokerClusterName": identity.cluster,
            "brokerName": identity.broker_name,
            "brokerId": str(replica_id),
            "brokerIP1": identity.host,
            "listenPort": str(identity.port),
            "brokerPermission": "6",
            "defaultTopicQueueNums": str(settings.default_queues),
            "autoCreateTopicEnable": _truth(settings.auto_create_topic),
            "autoCreateSubscriptionGroup": _truth(settings.auto_create_group),
            "regionId": settings.region,
            "traceOn": _truth(settings.trace_on),
            "maxMessageSize": str(settings.message_bytes_max),
            "messageDelayLevel": settings.delay_levels,
            "longPollingEnable": "true",
            "rejectTransactionMessage": "false",
            "transactionTimeOut": str(settings.transaction_timeout_ms),
            "transactionCheckInterval": str(settings.transaction_check_interval_ms),
            "transactionCheckMax": str(settings.transaction_checks_max),
            "enablePropertyFilter": _truth(settings.property_filter),
            "timerWheelEnable": "false",
            "brokerRole": "ASYNC_MASTER" if serving_rules.leads else "SLAVE",
            "flushDiskType": "ASYNC_FLUSH",
            "fileReservedTime": str(self._store.config.retention_ms // 3_600_000),
            "filterServerNums": "0",
            "slaveReadEnable": _truth(serving_rules.slave_reads),
            "traceTopicEnable": "false",
            "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
            "useTLS": "false",
        }


def _truth(value: bool) -> str:
    return "true" if value else "false"


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
