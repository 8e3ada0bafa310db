"""Replies to requests: pushed to the client that waits for them, over the connection it has.

A producer's request is a plain message whose properties name the producer's client and the request.
The consumer that replies sends the reply to the cluster's reply topic by a request code of its own;
whichever broker gets it has a heartbeat of the requester, and passes the reply on. As with RocketMQ
the reply is then stored as well, whether it was taken or not, and its sender hears what became of
the push.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import Exchange, Reply
from imago_broker.processors.rocketmq.outcomes import STORED, illegal_message
from imago_broker.processors.rocketmq.send.sending import SYS_KEPT, Sending
from imago_broker.service.puts.copies import with_value
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as props
from imago_wire.record_format import sequences
from imago_wire.records.record import (
    PLACED_PHYSICAL_OFFSET,
    PLACED_QUEUE_OFFSET,
    make_entry,
    offset_message_id,
)
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.send import ReplyMessageRequestHeader, read_send_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.ports import Clock
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.puts.put_status import PutStatus
    from imago_broker.service.topics.topics import TopicService
    from imago_wire.records.record import Placed
    from imago_wire.remoting.command import RemotingCommand

PUSH_TIMEOUT_MS = 10_000
"""How long the requester has to take its reply: RocketMQ's own."""


@dataclass(slots=True)
class _Pushed:
    """One reply, and what its sender will hear of it unless the store adds where it is."""

    exchange: Exchange
    sending: Sending
    code: int
    remark: str | None


class ReplyProcessor:
    """SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2."""

    def __init__(
        self,
        *,
        messages: MessageService,
        topics: TopicService,
        clients: ClientRegistry,
        clock: Clock,
        settings: LiveSettings[RocketmqSection],
        cluster: str,
    ) -> None:
        """Whose requests are checked replies to the topic of the `cluster` for that alone."""
        self._messages, self._topics = messages, topics
        self._reply_topic = names.reply_topic(cluster)
        self._clients, self._clock, self._settings = clients, clock, settings
        self._store = messages.store
        self._store_host = self._store.config.store_host

    def send_reply(self, exchange: Exchange) -> Reply | None:
        """Push the reply to its requester, store it, and say how the push went."""
        sending = Sending.of(exchange)
        name = sending.topic
        if self._topics.get(name) is None and (problem := rules.topic_problem(name)):
            raise rules.invalid(problem)
        if name in names.CLOSED_TO_SENDERS:
            raise rules.forbidden(f"Sending message to topic[{name}] is forbidden.")
        if exchange.user is not None and name != self._reply_topic:
            # A right to any other topic gives nobody a way to another user's client.
            raise rules.forbidden(f"Sending a reply to topic[{name}] is forbidden.")
        config = self._topics.get(name)
        if config is None:
            raise rules.unknown_topic(name)
        settings = self._settings.current
        if len(sending.body) > settings.message_bytes_max:
            return illegal_message(settings.message_bytes_max)
        if not 0 <= sending.queue_id < config.queues:
            sending.queue_id = 0
        sending.properties = sequences.without(sending.properties)
        requester = props.find(sending.properties, props.REPLY_TO_CLIENT.encode())
        if not requester:
            remark = "reply message properties[REPLY_TO_CLIENT] is null"
            self._keep(_Pushed(exchange, sending, ResponseCode.SYSTEM_ERROR, remark))
            return None
        self._push(exchange, sending, requester.decode("utf-8", "replace"))
        return None

    def _push(self, exchange: Exchange, sending: Sending, requester: str) -> None:
        channel = self._clients.producer_channel(requester)
        if channel is None or not channel.is_open:
            remark = f"push reply message fail, channel of {names.shown(requester)} not found."
            self._keep(_Pushed(exchange, sending, ResponseCode.SYSTEM_ERROR, remark))
            return
        now_ms = self._clock.epoch_ms()
        sending.properties = with_value(sending.properties, "PUSH_REPLY_TIME", str(now_ms))

        def answered(response: RemotingCommand | None) -> None:
            code, remark = ResponseCode.SUCCESS, None
            if response is None or response.code != ResponseCode.SUCCESS:
                code = ResponseCode.SYSTEM_ERROR
                remark = f"push reply message to {names.shown(requester)}fail."
            self._keep(_Pushed(exchange, sending, code, remark))

        channel.call(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            self._pushed_header(exchange, sending, now_ms).to_ext(),
            sending.body,
            PUSH_TIMEOUT_MS,
            answered,
        )

    def _pushed_header(
        self, exchange: Exchange, sending: Sending, now_ms: int
    ) -> ReplyMessageRequestHeader:
        sent = read_send_header(exchange.ext)
        return ReplyMessageRequestHeader(
            producer_group=sent.producer_group,
            topic=sending.topic,
            default_topic=sending.default_topic,
            default_topic_queue_nums=sending.default_queues,
            queue_id=sending.queue_id,
            sys_flag=sending.sys_flag,
            born_timestamp=sending.born_ms,
            flag=sending.flag,
            properties=sending.properties.decode("utf-8", "replace"),
            reconsume_times=sending.reconsume_times,
            unit_mode=sent.unit_mode,
            born_host=_host_text(exchange.channel.born_host),
            store_host=_host_text(self._store_host),
            store_timestamp=now_ms,
        )

    def _keep(self, pushed: _Pushed) -> None:
        sending = pushed.sending
        settings = self._settings.current
        handle = self._topics.handles.of(sending.topic)
        if not settings.store_replies or handle is None or not handle.partitions:
            self._answer(pushed)  # a topic that is sealed takes nothing more, not even this
            return
        try:
            entry = make_entry(
                self._store.tail(sending.topic, sending.queue_id),
                sending.body,
                sending.properties,
                flag=sending.flag,
                sys_flag=sending.sys_flag & SYS_KEPT,
                born_ms=sending.born_ms,
                born_host=pushed.exchange.channel.born_host,
                reconsume_times=sending.reconsume_times,
            )
        except ProtocolError:
            self._answer(pushed)  # the requester has it all the same
            return
        level = self._topics.handles.level_of(sending.topic.encode())
        self._messages.put_one(entry, level, self._stored, pushed)

    def _stored(self, pushed: _Pushed, status: PutStatus, placed: Sequence[Placed]) -> None:
        self._answer(pushed, placed[0] if status in STORED and placed else None)

    def _answer(self, pushed: _Pushed, placed: Placed | None = None) -> None:
        settings = self._settings.current
        message_id, offset = "0", 0
        if placed is not None:
            message_id = offset_message_id(self._store_host, placed[PLACED_PHYSICAL_OFFSET])
            offset = placed[PLACED_QUEUE_OFFSET]
        ext = {
            "msgId": message_id,
            "queueId": str(pushed.sending.queue_id),
            "queueOffset": str(offset),
            "MSG_REGION": settings.region,
            "TRACE_ON": "true" if settings.trace_on else "false",
        }
        pushed.exchange.answer(Reply(pushed.code, pushed.remark, ext))


def _host_text(host: bytes) -> str:
    """Return an address of a record as RocketMQ's clients read it in a header."""
    address = ipaddress.ip_address(host[:-4])
    return f"{address}:{int.from_bytes(host[-4:], 'big')}"
