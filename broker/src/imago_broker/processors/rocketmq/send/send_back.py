"""Messages that a consumer gives back: tried again later, or put with the dead letters."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.model.topics.sealing import seal_of
from imago_broker.model.topics.topics import PERM_WRITE
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.outcomes import STATUS_NAMES
from imago_broker.processors.rocketmq.send.sending import SYS_KEPT
from imago_broker.service.delays.parking import delayed_entry
from imago_broker.service.puts.copies import read_copy, with_default, with_value
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as props
from imago_wire.records.record import make_entry
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.pull import ConsumerSendMsgBackRequestHeader
from imago_wire.remoting.peer import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.model.groups import GroupConfig
    from imago_broker.processors.rocketmq.rules import GroupRules
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.figures.traffic import Traffic
    from imago_broker.service.puts.copies import StoredCopy
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topic_handles import TopicHandles
    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry, Placed

FIRST_LEVEL = 3
"""The first retry waits as long as delay level 3: 10 s."""


class SendBackProcessor:
    """CONSUMER_SEND_MSG_BACK."""

    def __init__(
        self,
        *,
        store: MessageStore,
        messages: MessageService,
        handles: TopicHandles,
        group_rules: GroupRules,
        delay: DelayService,
        traffic: Traffic,
    ) -> None:
        self._store = store
        self._messages = messages
        self._handles = handles
        self._group_rules = group_rules
        self._delay = delay
        self._traffic = traffic
        self._rng = random.Random()  # noqa: S311  spreads messages over queues, no secret

    def send_back(self, exchange: Exchange) -> Reply | None:
        """Store a copy of the message in the group's retry or dead-letter topic."""
        header = ConsumerSendMsgBackRequestHeader.from_ext(exchange.ext)
        group = self._group_rules.require(header.group)
        if group.retry_queues <= 0:
            return OK
        retry = self._group_rules.retries(group.name)
        if not retry.perm & PERM_WRITE and seal_of(retry) is None:
            # Sealed ones take what comes from the queues beside them that are read out.
            raise rules.forbidden(f"the topic[{retry.name}] sending message is forbidden")
        message = self._message(header.offset)
        tries_max = group.retry_max_times
        if header.max_reconsume_times is not None and exchange.command.version >= Version.V3_4_9:
            tries_max = header.max_reconsume_times
        if message.reconsume_times >= tries_max or header.delay_level < 0:
            entry = self._dead_letter(message, group)
        else:
            delay = header.delay_level or FIRST_LEVEL + message.reconsume_times
            # Those that readers find: the topic may have been made when the group had fewer.
            queues = min(group.retry_queues, rules.taking_queues(retry))
            entry = self._retry(message, group, delay, queues)
        origin = _origin(message)
        self._traffic.gave_back(group.name, origin)
        level = self._handles.level_of(origin.encode())
        self._messages.put([entry], level, self._stored, exchange)
        return None

    def _message(self, offset: int) -> StoredCopy:
        record = self._store.record_at(offset) if offset >= 0 else None
        if record is None:
            raise _no_message(offset)
        try:
            message = read_copy(record)
        except ProtocolError:
            raise _no_message(offset) from None
        if message.topic in names.WITHHELD_TOPICS:
            raise _no_message(offset)  # or a consumer had what is not committed, or not due
        return message

    def _dead_letter(self, message: StoredCopy, group: GroupConfig) -> Entry:
        topic = self._group_rules.own_topic(names.dlq_topic(group.name))
        rules.taking_queues(topic)
        properties = props.without(_copied(message), (b"DELAY",))
        first_id = message.text(b"ORIGIN_MESSAGE_ID") if _was_tried(message) else ""
        first_id = first_id or message.offset_message_id
        properties = with_default(properties, props.DLQ_ORIGIN_TOPIC, _origin(message))
        properties = with_default(properties, props.DLQ_ORIGIN_MESSAGE_ID, first_id)
        return make_entry(
            self._store.tail(topic.name, 0),
            message.body,
            properties,
            flag=message.flag,
            sys_flag=message.sys_flag & SYS_KEPT,
            born_ms=message.born_ms,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times + 1,
        )

    def _retry(self, message: StoredCopy, group: GroupConfig, level: int, queues: int) -> Entry:
        return delayed_entry(
            self._store,
            self._delay,
            level,
            topic=names.retry_topic(group.name),
            queue_id=self._rng.randrange(queues),
            body=message.body,
            properties=_copied(message),
            flag=message.flag,
            sys_flag=message.sys_flag & SYS_KEPT,
            born_ms=message.born_ms,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times + 1,
        )

    def _stored(self, exchange: Exchange, status: PutStatus, _: Sequence[Placed]) -> None:
        if status is PutStatus.OK:
            exchange.answer(OK)
        else:
            exchange.answer(Reply(ResponseCode.SYSTEM_ERROR, STATUS_NAMES[status]))


def _was_tried(message: StoredCopy) -> bool:
    """Whether what a message says of where it came from is to be believed."""
    return names.is_derived(message.topic)


def _origin(message: StoredCopy) -> str:
    """Return the topic of the message when it was consumed for the first time."""
    told = message.text(b"RETRY_TOPIC") if _was_tried(message) else ""
    return told or message.topic


def _copied(message: StoredCopy) -> bytes:
    """Return the copy's properties: where it came from stays what it was at the first return."""
    properties = props.as_sent(message.properties, tried=_was_tried(message))
    properties = with_default(properties, props.RETRY_TOPIC, message.topic)
    properties = with_default(properties, props.ORIGIN_MESSAGE_ID, message.offset_message_id)
    return with_value(properties, props.WAIT, "false")


def _no_message(offset: int) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
