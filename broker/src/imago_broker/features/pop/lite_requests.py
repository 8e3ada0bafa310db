"""POP_LITE_MESSAGE and LITE_SUBSCRIPTION_CTL: messages of all lite topics that a client wants.

Each lite topic is consumed in order: nothing more of it is handed out to a group while a message of
it is out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.features.pop.lite import BIND_ATTRIBUTE, place_of
from imago_broker.features.pop.pop_requests import MESSAGES_MAX, NOT_SETTLED, Pop
from imago_broker.features.pop.reading import ATTEMPT_SIZE, PopAsk
from imago_broker.features.pop.waiting import ANY_QUEUE
from imago_broker.model.topics.attributes import MESSAGE_TYPE
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.rows import not_here
from imago_wire.record_format.references import LIGHT_QUEUE_ID
from imago_wire.remoting.bodies.lite import LiteSubscriptionCtlRequestBody
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.pop import PopLiteMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.features.pop.giving import PopParts
    from imago_broker.features.pop.lite import LiteClient, LiteSubscriptions
    from imago_broker.features.pop.pop_requests import PopProcessor
    from imago_broker.features.pop.reading import PopTake


class LiteProcessor:
    """What clients of lite topics ask for."""

    def __init__(
        self,
        parts: PopParts,
        popping: PopProcessor,
        wanted: LiteSubscriptions,
        is_there: Callable[[str], bool],
    ) -> None:
        """`is_there`: whether anything was ever put into a light queue."""
        self._parts, self._popping, self._wanted = parts, popping, wanted
        self._is_there = is_there

    def sync(self, exchange: Exchange) -> Reply:
        """LITE_SUBSCRIPTION_CTL: what clients want from now on."""
        body = LiteSubscriptionCtlRequestBody.decode(exchange.command.body)
        if not body.subscription_set:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtl is empty.")
        if not self._parts.pops.ready:
            return not_here(NOT_SETTLED)
        for told in body.subscription_set:
            self._popping.allow_group(told.group, told.topic)
            self._require_bound(told.group, told.topic)
            self._wanted.sync(told)
        return OK

    def pop(self, exchange: Exchange) -> Reply | None:
        """POP_LITE_MESSAGE."""
        header = PopLiteMessageRequestHeader.from_ext(exchange.ext)
        until_ms = self._popping.until(header.born_time, header.poll_time)
        if not 0 < header.max_msg_num <= MESSAGES_MAX:
            raise rules.invalid(
                f"pop message's num is {header.max_msg_num}, at most {MESSAGES_MAX}"
            )
        self._popping.allow_group(header.consumer_group, header.topic)
        config = rules.readable_topic(self._parts.topics, header.topic)
        if config.attributes.get(MESSAGE_TYPE) != "LITE":
            raise rules.invalid(f"the topic [{header.topic}] message type not match")
        self._require_bound(header.consumer_group, header.topic)
        ask = PopAsk(
            group=header.consumer_group,
            topic=header.topic,
            queue_ids=(LIGHT_QUEUE_ID,),
            messages_max=header.max_msg_num,
            bytes_max=self._popping.allowance(),
            invisible_ms=header.invisible_time,
            from_end=True,
            in_order=True,
            attempt=(header.attempt_id or "")[:ATTEMPT_SIZE],
        )
        client = (header.consumer_group, header.client_id)
        pop = _LitePop(self._parts, exchange, ask, ANY_QUEUE, until_ms)
        pop.of_client(client, self._wanted, self._is_there)
        return pop.begin()

    def _require_bound(self, group: str, topic: str) -> None:
        known = self._parts.groups.get(group)
        bound = "" if known is None else known.attributes.get(BIND_ATTRIBUTE, "")
        if bound not in ("", topic):
            raise rules.invalid(f"the group {group} is for lite topics of {bound}, not of {topic}")


class _LitePop(Pop):
    """One POP_LITE_MESSAGE."""

    _client: LiteClient
    _wanted: LiteSubscriptions
    _is_there: Callable[[str], bool]

    def of_client(
        self, client: LiteClient, wanted: LiteSubscriptions, is_there: Callable[[str], bool]
    ) -> None:
        """Say whose it is, before it begins."""
        self._client, self._wanted, self._is_there = client, wanted, is_there
        self._place = place_of(client)

    def _taken(self, now_ms: int) -> PopTake:
        ask = self._ask
        wanted = [queue for queue in self._wanted.of(self._client) if self._is_there(queue)]
        take = self._parts.reader.take_each([ask._replace(topic=each) for each in wanted], now_ms)
        self._wanted.given(self._client, [look.popped.key[1] for look in take.queues])
        return take

    def _refusal(self) -> Reply | None:
        ask = self._ask
        try:
            group = rules.may_consume(ask.group, self._parts.groups.get(ask.group))
            rules.may_read(group, ask.topic)
            rules.readable_topic(self._parts.topics, ask.topic)
        except RequestError as refusal:
            return refusal.reply
        return None

    def _note_due(self) -> None:
        for queue in self._wanted.of(self._client):
            popped = self._parts.pops.known((self._ask.group, queue, LIGHT_QUEUE_ID))
            due_ms = None if popped is None else popped.state.due_ms
            if due_ms is not None:
                self._parts.waiting.out_until(queue, LIGHT_QUEUE_ID, due_ms)
