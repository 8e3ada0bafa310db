"""Sends: the fast path for plain messages, the slow path for everything else.

The fast path takes what the scanner found in the bytes to the log without a command object or a
map of header fields; it serves a plain message or batch to a topic that exists. Whatever it does
not serve goes through the table, with hooks and limits, to the slow path.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from imago_broker.errors import RequestError as ServiceError
from imago_broker.model import names
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.outcomes import REFUSED, STORED, illegal_message
from imago_broker.processors.rocketmq.send.inflating import Inflater
from imago_broker.processors.rocketmq.send.placing import place_by_properties
from imago_broker.processors.rocketmq.send.sending import (
    SYS_KEPT,
    Sending,
    broker_properties,
    checked_topic,
    delay_level,
    is_dead_letter,
    require_supported,
    with_broker_properties,
)
from imago_broker.processors.rocketmq.send.sequenced import (
    refusal_reply,
    require_direct,
    take_numbers,
)
from imago_broker.service.delays.parking import message_entry
from imago_broker.service.delays.timers.timer_properties import asked_ms, is_timed
from imago_broker.service.puts.copies import joined
from imago_broker.service.transactions.half_messages import is_half
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as props
from imago_wire.record_format.references import ALLOWED_PROPERTY
from imago_wire.records.record import PLACED_PHYSICAL_OFFSET, PLACED_QUEUE_OFFSET, offset_message_id
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import BatchEntry, decode_batch, decode_births
from imago_wire.remoting.texts.handles import RecallHandle

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_broker.processors.rocketmq.identity import ThisBroker
    from imago_broker.processors.rocketmq.rules import GroupRules
    from imago_broker.processors.rocketmq.send.half_sends import HalfSends
    from imago_broker.processors.rocketmq.send.inflating import Shape
    from imago_broker.processors.rocketmq.send.sending import OnTopicMade, PutParts
    from imago_broker.service.puts.put_status import PutStatus
    from imago_wire.records.record import Entry, Placed


class SendProcessor:
    """SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, the slow path."""

    def __init__(
        self,
        *,
        puts: PutParts,
        this: ThisBroker,
        group_rules: GroupRules,
        halves: HalfSends,
        on_topic_made: OnTopicMade,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._messages, self._store = puts.messages, puts.messages.store
        self._sequenced, self._topics = puts.sequenced, puts.topics
        self._group_rules, self._halves = group_rules, halves
        self._delay, self._unique_keys = puts.delay, puts.unique_keys
        self._identity, self._settings = this.identity, this.settings
        self._on_topic_made = on_topic_made
        self._inflater = Inflater(loop)
        self._added = broker_properties(this.identity.cluster, this.settings.current)
        self._store_host = self._store.config.store_host
        self._rng = random.Random()  # noqa: S311  spreads messages over queues, no secret

    def send(self, exchange: Exchange) -> Reply | None:
        """Check, choose the queue, put; the answer follows when the message is safe."""
        sending = Sending.of(exchange)
        config = checked_topic(self._topics, self._on_topic_made, sending, exchange.channel.peer)
        require_supported(self._identity.host, sending)
        if len(sending.body) > self._settings.current.message_bytes_max:
            return illegal_message(self._settings.current.message_bytes_max)
        if sending.queue_id < 0:
            handle = self._topics.handles.of(config.name)
            sending.queue_id = self._rng.randrange(handle.partitions if handle else 1)
        if sending.batch:
            return self._batch(exchange, sending)
        place_by_properties(sending, config)
        self._single(exchange, sending)
        return None

    def _single(self, exchange: Exchange, sending: Sending) -> None:
        sending.delay_level = delay_level(sending.properties)
        if is_dead_letter(self._group_rules, sending, exchange.command.version):
            sending.topic, sending.queue_id = self._dead_letter_topic(sending), 0
            sending.delay_level = 0
            sending.properties = props.without(sending.properties, (b"DELAY",))
        elif not sending.delay_level:
            delay_ms_max = self._settings.current.timer_delay_ms_max
            sending.due_ms = checked_due_ms(sending.properties, self._delay.now_ms(), delay_ms_max)
        with_key = self._with_unique_key(sending.properties)
        sending.properties = with_broker_properties(with_key, self._added)
        sending.half = is_half(sending.sys_flag, sending.properties)
        self._look_for_light_queues(sending)
        if sending.half:
            sending.due_ms = 0  # it waits from when it is committed
            self._halves.require_room(exchange, sending)
        parts = [BatchEntry(sending.body, sending.properties, sending.flag)]
        self._finish(exchange, sending, parts)

    def _look_for_light_queues(self, sending: Sending) -> None:
        """Note which light queues have the message, too; refuse it where they cannot."""
        light = self._messages.light
        named = light.named_by(sending.topic, sending.properties)
        if not named:
            return
        if problem := light.problem(named, sending.properties, waits=sending.waits):
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal, {problem}")
        sending.light = named

    def _batch(self, exchange: Exchange, sending: Sending) -> Reply | None:
        if sending.topic.startswith(names.RETRY_PREFIX):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {sending.topic}",
            )
        try:
            parts = decode_batch(sending.body)
        except ProtocolError:
            parts = []
        parts = [part._replace(properties=props.as_sent(part.properties)) for part in parts]
        special = any(
            props.find(part.properties, b"TRAN_MSG") or _waits(part.properties) for part in parts
        )
        of_all = _waits(sending.properties) or is_half(sending.sys_flag, sending.properties)
        if special or of_all or not parts:
            return illegal_message(self._settings.current.message_bytes_max)
        self._finish(exchange, sending, parts)
        return None

    def _finish(self, exchange: Exchange, sending: Sending, parts: Sequence[BatchEntry]) -> None:
        """Put the messages, as soon as the shape of compressed ones is known."""
        parts, sending.claimed = take_numbers(parts, exchange.sender)
        if sending.claimed is not None:
            require_direct(sending.topic, waits=sending.waits)
        config = self._topics.get(sending.topic)
        if config is None or not config.dual:
            self._put_parts(exchange, sending, parts, [None] * len(parts))
            return
        self._inflater.shapes(
            exchange,
            [part[:2] for part in parts],
            sending.sys_flag,
            body_bytes_max=self._settings.current.message_bytes_max,
            use=lambda shapes: self._put_parts(exchange, sending, parts, shapes),
        )

    def _put_parts(
        self,
        exchange: Exchange,
        sending: Sending,
        parts: Sequence[BatchEntry],
        shapes: list[Shape | None],
    ) -> None:
        # The topic is looked up now: it may have been deleted, or made again, since the checks.
        config = self._topics.get(sending.topic)
        if config is None or sending.queue_id >= config.queues:
            exchange.answer(rules.unknown_topic(sending.topic).reply)
            return
        try:
            count = len(parts)
            found = decode_births(sending.properties, sending.born_ms, count) if count > 1 else None
            births = found or [sending.born_ms] * count
            entries = [
                self._entry(exchange, sending, part, shape, born_ms)
                for part, shape, born_ms in zip(parts, shapes, births, strict=True)
            ]
        except ProtocolError:
            exchange.answer(illegal_message(self._settings.current.message_bytes_max))
            return
        except ServiceError as error:
            exchange.answer(Reply(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        level = self._topics.handles.level_of(sending.topic.encode())
        token, claimed = (exchange, sending), sending.claimed
        if sending.half:
            self._halves.put(entries[0], sending, level, self._stored, token)
            return
        if claimed is None:
            self._messages.put(entries, level, self._stored, token)
            return
        refusal = self._sequenced.put(entries, claimed, level, self._stored, token)
        if sending.light and self._messages.newest is not entries:
            self._messages.light.pending -= 1  # a repeat, or refused
        if refusal is not None:
            queue = f"{sending.topic}/{sending.queue_id}"
            exchange.answer(refusal_reply(refusal, claimed, queue))

    def _entry(
        self,
        exchange: Exchange,
        sending: Sending,
        part: BatchEntry,
        shape: Shape | None,
        born_ms: int,
    ) -> Entry:
        named = sending.light
        if named and sending.waits:
            named, part = (), part._replace(properties=joined(part.properties, ALLOWED_PROPERTY))
        if sending.half:
            return self._halves.entry(sending, part, shape, exchange.channel.born_host)
        entry = message_entry(
            self._store,
            self._delay,
            level=sending.delay_level,
            due_ms=sending.due_ms,
            topic=sending.topic,
            queue_id=sending.queue_id,
            body=part.body,
            properties=part.properties,
            flag=part.flag,
            sys_flag=sending.sys_flag & SYS_KEPT,
            born_ms=born_ms,
            born_host=exchange.channel.born_host,
            reconsume_times=sending.reconsume_times,
            shape=shape,
        )
        return self._messages.light.entry(entry, named) if named else entry

    def _stored(
        self, token: tuple[Exchange, Sending], status: PutStatus, placed: Sequence[Placed]
    ) -> None:
        exchange, sending = token
        exchange.answer(self._answer(sending, status, placed))

    def _answer(self, sending: Sending, status: PutStatus, placed: Sequence[Placed]) -> Reply:
        if status not in STORED:
            return REFUSED[status]
        ids = ",".join(
            offset_message_id(self._store_host, place[PLACED_PHYSICAL_OFFSET])
            for place in placed
            if place[PLACED_PHYSICAL_OFFSET]
            >= 0  # else a repeat of messages whose places are not remembered
        )
        unique = props.find(sending.properties, b"UNIQ_KEY")
        ext = {
            "msgId": ids,
            "queueId": str(sending.queue_id),
            "queueOffset": str(placed[0][PLACED_QUEUE_OFFSET]),
            "MSG_REGION": self._settings.current.region,
            "TRACE_ON": "true" if self._settings.current.trace_on else "false",
        }
        if unique is not None:
            ext["transactionId"] = unique.decode(errors="replace")
            if sending.due_ms and not sending.topic.startswith(names.RETRY_PREFIX):
                broker, message = self._identity.broker_name, ext["transactionId"]
                handle = RecallHandle(sending.topic, broker, sending.due_ms, message)
                ext["recallHandle"] = str(handle)
        return Reply(STORED[status], ext=ext)

    def _with_unique_key(self, properties: bytes) -> bytes:
        if props.find(properties, b"UNIQ_KEY"):
            return properties
        return joined(properties, f"UNIQ_KEY\x01{self._unique_keys.next()}\x02".encode())

    def _dead_letter_topic(self, sending: Sending) -> str:
        group = sending.topic.removeprefix(names.RETRY_PREFIX)
        topic = self._group_rules.own_topic(names.dlq_topic(group))
        rules.taking_queues(topic)
        return topic.name


def _waits(properties: bytes) -> bool:
    """Whether a message does not go to its queue at once, which none of a batch can."""
    return bool(delay_level(properties)) or is_timed(properties)


# Messages that name a time of their own: which times a broker takes, in RocketMQ's words.


def checked_due_ms(properties: bytes, now_ms: int, delay_ms_max: int) -> int:
    """Return when a timed message is due; 0: it is due now. RequestError: it cannot wait so long.

    `delay_ms_max`: 0 allows none at all.
    """
    if not is_timed(properties):
        return 0
    if not delay_ms_max:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    due = asked_ms(properties, now_ms)
    if due is None or due - now_ms > delay_ms_max:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{delay_ms_max}ms; or if set del msg, the delay time should be bigger than the "
            "current time",
        )
    return due if due > now_ms else 0
