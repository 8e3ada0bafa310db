"""Administration of topics: made, changed, deleted, listed, measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from imago_broker.errors import HidesMessagesError, TopicExistsError
from imago_broker.model import names
from imago_broker.model.topics.attributes import MESSAGE_TYPE, kept_problem, unknown_problem
from imago_broker.model.topics.sealing import seal_of, without_seal
from imago_broker.model.topics.topics import TopicConfig, perm_problem
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.tools.wire_forms import changed_attributes, topic_body
from imago_broker.service.topics.sizes import queue_bytes
from imago_wire.errors import in_our_words
from imago_wire.remoting.bodies.client import GroupList, MessageQueue
from imago_wire.remoting.bodies.config import (
    CreateTopicListRequestBody,
    TopicConfigAndQueueMapping,
    TopicConfigSerializeWrapper,
)
from imago_wire.remoting.bodies.config import TopicConfig as TopicConfigBody
from imago_wire.remoting.bodies.route import TopicList
from imago_wire.remoting.bodies.stats import (
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.fields import int_field
from imago_wire.remoting.headers.admin import (
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from imago_wire.remoting.headers.imago import (
    PERM,
    QUEUES,
    ChangeTopicRequestHeader,
    ChangeTopicResponseHeader,
    TopicChange,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.ports import Clock
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.topics.static_topics import StaticTopics
    from imago_broker.service.topics.topics import TopicService
    from imago_broker.service.topics.versions import TableVersion
    from imago_log.store import MessageStore


@dataclass(slots=True, eq=False, kw_only=True)
class TopicAdmin:
    """The request codes about topics."""

    store: MessageStore
    topics: TopicService
    offsets: ConsumerOffsets
    clock: Clock
    clients: ClientRegistry
    topic_version: TableVersion
    identity: RocketmqIdentity
    static_topics: StaticTopics

    def create(self, exchange: Exchange) -> Reply:
        """UPDATE_AND_CREATE_TOPIC: what is named is what the topic has then, whatever it hides."""
        header = ChangeTopicRequestHeader.from_ext(exchange.ext)
        body = TopicConfigBody(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        topics = self.topics
        wanted = self._checked(body, header.attributes)
        if header.imago_change is not None:
            return change(topics, header, wanted, topics.get(wanted.name))
        _require_enabled(wanted)
        topics.create_or_update(wanted, hide_messages=True)
        return OK

    def create_list(self, exchange: Exchange) -> Reply:
        """UPDATE_AND_CREATE_TOPIC_LIST: all, or none when one of them cannot be."""
        wanted = CreateTopicListRequestBody.decode(exchange.command.body)
        configs = [
            self._checked(body, _as_changes(body.attributes)) for body in wanted.topic_config_list
        ]
        for config in configs:
            _require_enabled(config)
            self.topics.check(config, hide_messages=True)
        for config in configs:
            self.topics.create_or_update(config, hide_messages=True)
        return OK

    def _checked(self, body: TopicConfigBody, attributes: str | None) -> TopicConfig:
        name = body.topic_name
        current = self.topics.get(name)
        if current is None and (problem := rules.topic_problem(name)):
            raise rules.invalid(problem)
        rules.require_not_own(name, self.topics.cluster)
        had = current.attributes if current else {}
        merged = changed_attributes(had, attributes)
        if problem := kept_problem(had, merged):
            raise rules.invalid(problem)
        try:
            return replace(
                current or TopicConfig(name=name),
                read_queues=body.read_queue_nums,
                write_queues=body.write_queue_nums,
                perm=body.perm,
                order=body.order,
                sys_flag=body.topic_sys_flag,
                filter_type=body.topic_filter_type,
                attributes=merged,
            )
        except ValueError as error:
            raise rules.invalid(in_our_words(error)) from None

    def delete(self, exchange: Exchange) -> Reply:
        """DELETE_TOPIC_IN_BROKER: one that does not exist is no error."""
        header = DeleteTopicRequestHeader.from_ext(exchange.ext)
        if not header.topic.strip():
            raise rules.invalid("The specified topic is blank.")
        rules.require_not_own(header.topic, self.topics.cluster)
        self.topics.delete(header.topic)
        return OK

    def all_configs(self, exchange: Exchange) -> Reply:
        """GET_ALL_TOPIC_CONFIG: the whole table, or the slice that 5.x asks for."""
        configs = self.topics.all()
        start = max(0, int_field(exchange.ext, "topicSeq", 0))
        count = max(0, int_field(exchange.ext, "maxTopicNum", len(configs)))
        version = exchange.command.version
        wrapper = TopicConfigSerializeWrapper(
            data_version=self.topic_version.body(version),
            topic_config_table={
                config.name: topic_body(config, version)
                for config in configs[start : start + count]
            },
            topic_queue_mapping_detail_map={
                mapping.topic: mapping.to_json() for mapping in self.static_topics.all()
            }
            or None,
        )
        return Reply(ext={"totalTopicNum": str(len(configs))}, body=wrapper.encode())

    def config(self, exchange: Exchange) -> Reply:
        """GET_TOPIC_CONFIG."""
        header = GetTopicConfigRequestHeader.from_ext(exchange.ext)
        config = self.topics.get(header.topic)
        if config is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}"
            )
        value = topic_body(config, exchange.command.version).to_json()
        mapping = self.static_topics.get(header.topic)
        if mapping is not None:
            value["mappingDetail"] = mapping.to_json()
        return Reply(body=TopicConfigAndQueueMapping.from_json(value).encode())

    def stats(self, exchange: Exchange) -> Reply:
        """GET_TOPIC_STATS_INFO: each queue's bounds and when it was written last."""
        header = GetTopicStatsInfoRequestHeader.from_ext(exchange.ext)
        config = self._config(header.topic)
        table = {
            self._queue(config.name, queue_id): self._bounds(
                config.name, queue_id, sized=bool(header.sizes)
            )
            for queue_id in range(config.queues)
        }
        return Reply(body=TopicStatsTable(offset_table=table).encode())

    def who_consumes(self, exchange: Exchange) -> Reply:
        """QUERY_TOPIC_CONSUME_BY_WHO: groups with an offset in the topic, and live ones."""
        header = QueryTopicConsumeByWhoRequestHeader.from_ext(exchange.ext)
        groups = {
            *self.offsets.of_topic(header.topic),
            *self.clients.groups_of_topic(header.topic),
        }
        return Reply(body=GroupList(group_list=tuple(sorted(groups))).encode())

    def time_span(self, exchange: Exchange) -> Reply:
        """QUERY_CONSUME_TIME_SPAN: how old what a group reads next is, queue by queue."""
        header = QueryConsumeTimeSpanRequestHeader.from_ext(exchange.ext)
        config = self._config(header.topic)
        spans = tuple(
            self._span(header.group, config.name, queue_id) for queue_id in range(config.queues)
        )
        return Reply(body=QueryConsumeTimeSpanBody(consume_time_span_set=spans).encode())

    def system_list(self, _: Exchange) -> Reply:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        cluster = self.topics.cluster
        found = tuple(c.name for c in self.topics.all() if names.is_system(c.name, cluster))
        return Reply(body=TopicList(topic_list=found).encode())

    def _config(self, topic: str) -> TopicConfig:
        config = self.topics.get(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self.identity.broker_name, queue_id)

    def _bounds(self, topic: str, queue_id: int, *, sized: bool) -> TopicOffset:
        low, high = self.store.queue_range(topic, queue_id)
        written = self.store.store_time(topic, queue_id, high - 1) if high > low else None
        return TopicOffset(
            last_update_timestamp=written or 0,
            max_offset=high,
            min_offset=low,
            size=queue_bytes(self.store, topic, queue_id) if sized else None,
        )

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        low, high = self.store.queue_range(topic, queue_id)
        oldest = self.store.store_time(topic, queue_id, low) or 0
        newest = self.store.store_time(topic, queue_id, high - 1) or 0
        offset = self.offsets.query(group, topic, queue_id) or 0
        consumed = self.store.store_time(topic, queue_id, offset - 1) if offset > 0 else None
        consumed = consumed if consumed is not None else oldest
        unread = self.store.store_time(topic, queue_id, max(offset, low))
        behind = 0 if unread is None or offset >= high else self.clock.epoch_ms() - unread
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=oldest,
            min_time_stamp_str=_time_text(oldest),
            max_time_stamp=newest,
            max_time_stamp_str=_time_text(newest),
            consume_time_stamp=consumed,
            consume_time_stamp_str=_time_text(consumed),
            delay_time=max(0, behind),
        )


def _require_enabled(wanted: TopicConfig) -> None:
    """Refuse RocketMQ's tools what its brokers refuse unless they are configured otherwise."""
    if wanted.attributes.get(MESSAGE_TYPE, "").upper() == "MIXED":
        raise rules.invalid("MIXED message type is not supported.")


def _as_changes(attributes: object) -> str | None:
    """A list of topics carries whole attributes; given as changes they all are additions."""
    if not isinstance(attributes, dict):
        return None
    return ",".join(f"+{str(k).lstrip('+')}={v}" for k, v in attributes.items())


def _time_text(ms: int) -> str:
    """Return a time in the form that RocketMQ's tools print: `yyyy-MM-dd#HH:mm:ss:SSS`, UTC."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{ms % 1000:03d}"


# Changes of topics as our own clients ask for them: looked at here, where they are made.
# RocketMQ's tools name every setting of a topic each time, and get what they name. Our clients say
# what they mean: a new topic, or one setting of a topic that there is; what they leave out is kept.


def change(
    topics: TopicService,
    asked: ChangeTopicRequestHeader,
    whole: TopicConfig,
    current: TopicConfig | None,
) -> Reply:
    """Make or alter a topic. `whole`: the settings as if all that was sent had been named."""
    if current is None and asked.imago_change != TopicChange.ALTER and topics.intake.cordoned:
        text = f"topic {whole.name}: this shard is cordoned and takes no new topics"
        raise RequestError(ResponseCode.IMAGO_CORDONED, text)
    if problem := _said_problem(asked, whole, current):
        raise rules.invalid(f"topic {whole.name}: {problem}")
    try:
        wanted = _wanted(asked, whole, current)
        hidden = topics.hidden_by(wanted)
        topics.create_or_update(wanted, hide_messages=asked.imago_hide_messages)
    except TopicExistsError as error:
        raise RequestError(ResponseCode.IMAGO_TOPIC_EXISTS, str(error)) from None
    except HidesMessagesError as error:
        ext = ChangeTopicResponseHeader(imago_hidden=error.messages).to_ext()
        raise RequestError(ResponseCode.IMAGO_HIDES_MESSAGES, str(error), ext=ext) from None
    return replace(OK, ext=ChangeTopicResponseHeader(imago_hidden=hidden).to_ext())


def _said_problem(
    asked: ChangeTopicRequestHeader, whole: TopicConfig, current: TopicConfig | None
) -> str | None:
    had = current.attributes if current is not None else {}
    said = [name for name, value in whole.attributes.items() if had.get(name) != value]
    if PERM in _named(asked) and (problem := perm_problem(whole.perm)):
        return problem
    return unknown_problem(said)


def _named(asked: ChangeTopicRequestHeader) -> frozenset[str]:
    return frozenset((asked.imago_named or "").split(","))


def _wanted(
    asked: ChangeTopicRequestHeader, whole: TopicConfig, current: TopicConfig | None
) -> TopicConfig:
    named = _named(asked)
    change = asked.imago_change
    if change == TopicChange.ALTER:
        if current is None:
            raise rules.unknown_topic(whole.name)
        return _altered(current, whole, named)
    if change not in (TopicChange.CREATE, TopicChange.ENSURE):
        raise rules.invalid(f"imagoChange {(change or '')[:64]!r} is unknown")
    if current is None:
        return whole
    if change == TopicChange.CREATE:
        raise TopicExistsError(f"the topic {whole.name} exists already")
    if other := ", ".join(_differences(current, whole, named)):
        raise TopicExistsError(f"the topic {whole.name} exists already, with {other}")
    return current


def _altered(current: TopicConfig, whole: TopicConfig, named: frozenset[str]) -> TopicConfig:
    altered = replace(current, attributes=whole.attributes)
    if QUEUES in named:
        altered = replace(altered, read_queues=whole.read_queues, write_queues=whole.write_queues)
    return replace(altered, perm=whole.perm) if PERM in named else altered


def _differences(current: TopicConfig, whole: TopicConfig, named: frozenset[str]) -> Iterator[str]:
    """Yield the named settings that the topic has otherwise, as it has them."""
    # Of a sealed topic the queues and the permission are those of its shards that are open.
    if seal_of(current) is None:
        queues = (current.write_queues, current.read_queues)
        if QUEUES in named and queues != (whole.write_queues, whole.read_queues):
            same = len(set(queues)) == 1
            yield (
                f"{queues[0]} queues" if same else f"{queues[0]} write and {queues[1]} read queues"
            )
        if PERM in named and current.perm != whole.perm:
            yield f"perm {current.perm}"
    has = without_seal(current.attributes)
    for name, value in without_seal(whole.attributes).items():
        if has.get(name) != value:
            yield f"{name}={has[name]}" if name in has else f"no {name}"
