"""POP_LITE_MESSAGE and LITE_SUBSCRIPTION_CTL: messages of all lite topics that a client wants."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from imago_broker.features.pop.lite_topics.wants import BIND_ATTRIBUTE, place_of
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
    from collections.abc import Iterable

    from imago_broker.features.pop.giving import PopParts
    from imago_broker.features.pop.lite_topics.wants import LiteClient, LiteSubscriptions, LiteWants
    from imago_broker.features.pop.pop_requests import PopProcessor
    from imago_broker.features.pop.reading import PopTake


SUBSCRIPTIONS_MAX = 1000
"""Clients of which one request speaks: RocketMQ's proxies send one."""
LITE_NAMES_MAX = 10_000
"""Of one request."""


class LiteProcessor:
    """What clients of lite topics ask for."""

    def __init__(self, parts: PopParts, popping: PopProcessor, wanted: LiteSubscriptions) -> None:
        self._parts, self._popping, self._wanted = parts, popping, wanted

    def sync(self, exchange: Exchange) -> Reply:
        """LITE_SUBSCRIPTION_CTL: what clients want from now on."""
        body = LiteSubscriptionCtlRequestBody.decode(exchange.command.body)
        if not body.subscription_set:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtl is empty.")
        names = sum(map(self._wanted.names_of, body.subscription_set))
        if len(body.subscription_set) > SUBSCRIPTIONS_MAX or names > LITE_NAMES_MAX:
            raise rules.invalid(
                f"{len(body.subscription_set)} clients and {names} lite topics in one request, at "
                f"most {SUBSCRIPTIONS_MAX} and {LITE_NAMES_MAX}"
            )
        if not self._parts.pops.ready:
            return not_here(NOT_SETTLED)
        places: dict[bytes, None] = {}
        try:
            for told in body.subscription_set:
                self._popping.allow_group(told.group, told.topic)
                self._require_bound(told.group, told.topic)
                places[self._wanted.sync(told, exchange.user or "")] = None
        finally:
            self._wanted.tell_out()
            for place in places:
                self._parts.waiting.look_again_at(place)
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
        pop.of_client(client, self._wanted)
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
    _goes_on = False
    """Whether there are more lite topics to look at than one look goes over."""

    def of_client(self, client: LiteClient, wanted: LiteSubscriptions) -> None:
        """Say whose it is, before it begins."""
        self._client, self._wanted = client, wanted
        self._place = place_of(client)

    def _taken(self, now_ms: int) -> PopTake:
        ask, pops, wanted = self._ask, self._parts.pops, self._wanted.of(self._client)
        if wanted is None:
            return self._parts.reader.take_each((), now_ms)
        for queue, due_ms in list(wanted.out.items()):
            popped = pops.known((ask.group, queue, LIGHT_QUEUE_ID))
            again = bool(ask.attempt) and popped is not None and popped.attempt[0] == ask.attempt
            if due_ms <= now_ms or again:
                del wanted.out[queue]
                wanted.ready[queue] = None
        looked: list[str] = []
        looks_max = self._wanted.looks_max(ask.group)

        def asks() -> Iterable[PopAsk]:
            for queue in list(islice(wanted.ready, looks_max)):
                looked.append(queue)
                if queue in self._wanted.there:
                    yield ask._replace(topic=queue)

        take = self._parts.reader.take_each(asks(), now_ms)
        given = {look.popped.key[1] for look in take.queues}
        for queue in looked:
            self._looked_at(wanted, queue, now_ms, given=queue in given)
        self._goes_on = len(looked) == looks_max
        return take

    def _looked_at(self, wanted: LiteWants, queue: str, now_ms: int, *, given: bool) -> None:
        """Come back to a light queue when messages do, or when something has happened in it.

        Those that have just been given are in `out` once the answer is on its way.
        """
        del wanted.ready[queue]
        wanted.out.pop(queue, None)
        popped = self._parts.pops.known((self._ask.group, queue, LIGHT_QUEUE_ID))
        if popped is None or given:
            return
        if popped.state.blocked(now_ms):
            wanted.out[queue] = popped.state.due_ms or now_ms
        elif popped.state.next_offset < self._parts.reader.end_of(queue, LIGHT_QUEUE_ID):
            wanted.ready[queue] = None  # there was no room, or it is long

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
        wanted = self._wanted.of(self._client)
        if wanted is None:
            return
        if self._goes_on and wanted.ready:
            self._parts.waiting.come_back(self._place, self._parts.clock.epoch_ms())
        elif wanted.out:
            self._parts.waiting.come_back(self._place, min(wanted.out.values()))
