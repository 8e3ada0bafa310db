"""ReceiveMessage: a POP over all queues of this broker, which waits until something is there."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.attributes import has_lite_topics
from imago_broker.model.topics.topics import PERM_READ
from imago_broker.processors.grpc.asking import AskedResult
from imago_broker.processors.grpc.calls import CallError, status
from imago_broker.processors.grpc.checks import group_name, topic_name
from imago_broker.processors.grpc.consuming.acknowledging import queue_of
from imago_broker.processors.grpc.consuming.plain_receives import (
    HIDDEN_MS_MAX,
    HIDDEN_MS_MIN,
    RENEWED_MS,
    batch_of,
    plain_receive,
)
from imago_broker.processors.grpc.consuming.receipts import parse_handle
from imago_broker.processors.grpc.message_forms import told_message, told_topic
from imago_wire.errors import ProtocolError
from imago_wire.grpc import headers as heads
from imago_wire.grpc.answers import framed
from imago_wire.grpc.codes import SdkCode, of_remoting
from imago_wire.grpc.messages import SQL, duration, encoded, make, milliseconds, timestamp
from imago_wire.grpc.scanning.items import SharedDelivery
from imago_wire.grpc.scanning.twins import told_records
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.peer import Language

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.grpc.consuming.acknowledging import AckCalls
    from imago_broker.processors.grpc.consuming.fast_path import FastPath
    from imago_broker.service.groups.channel import Reply
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.topics.topics import TopicService

log = logging.getLogger(__name__)

POLL_MS_MIN, POLL_MS_MAX = 5_000, 20_000
LEFT_MS = 100
"""Before the client's deadline, so that the answer comes first."""
REQUEST_MS = 3_000
"""How long clients wait for an answer beside what they let a poll wait."""
LITE_OUT_MAX = 100
"""Messages that a push consumer of lite topics may have out, as at RocketMQ's proxy."""
_INIT_FROM_END = "1"
_OLD_CLIENT = "5.0.3"


def _begun(code: SdkCode) -> bytes:
    return framed([encoded(make("ReceiveMessageResponse", status=status(code)))])


_FOUND, _NOT_FOUND = _begun(SdkCode.OK), _begun(SdkCode.MESSAGE_NOT_FOUND)
"""How answers begin."""


class ShortPopping(Protocol):
    """POPs without a request."""

    def take_now(
        self,
        group: str,
        topic: str,
        expression: tuple[str, str],
        messages_max: int,
        invisible_ms: int,
        given: Callable[[Reply, bytes, int, int, dict[int, int]], None],
    ) -> bool:
        """Have messages given; False: there are none now, or it has to be refused."""
        ...


class PlainPops(NamedTuple):
    """Receives without a request: what lets them by, and what serves them."""

    way: FastPath
    pops: ShortPopping


class LiteReaders(NamedTuple):
    """Who reads lite topics."""

    wants: Callable[[tuple[str, str]], bool | None]
    """Whether a client does; None: it has not said."""
    takes_up: Callable[[tuple[str, str]], object | None]
    """Those of a group's client."""


class HandoutRenewals(Protocol):
    """What keeps messages out for who works on them."""

    def add(
        self,
        client: tuple[str, str],
        queues: Iterable[tuple[str, str, int]],
        stamp: int,
        due_ms: int,
    ) -> None:
        """Keep messages out that a client was given, for as long as it is there."""
        ...

    def count_of(self, client: tuple[str, str]) -> int:
        """Return how many messages a client has."""
        ...


class ReceiveCalls:
    """What consumers get."""

    def __init__(
        self,
        topics: TopicService,
        groups: GroupService,
        *,
        acks: AckCalls,
        renewals: HandoutRenewals,
        lite: LiteReaders,
        plain: PlainPops,
    ) -> None:
        self._way, self._pops = plain.way, plain.pops
        self._topics, self._groups = topics, groups
        self._asker, self._clock, self._broker_name = acks.asker, acks.clock, acks.broker_name
        self._acks, self._renewals = acks, renewals
        self._wants_lite, self._takes_up = lite.wants, lite.takes_up

    def receive(self, call: Call, request: Any) -> None:
        """ReceiveMessage."""
        poll_ms = polling_ms(call, request)
        topic, group = topic_name(request.message_queue.topic), group_name(request.group)
        if request.auto_renew:
            invisible_ms = RENEWED_MS
        else:
            invisible_ms = milliseconds(request.invisible_duration)
            if not HIDDEN_MS_MIN <= invisible_ms <= HIDDEN_MS_MAX:
                raise CallError(
                    SdkCode.ILLEGAL_INVISIBLE_TIME,
                    f"invisible for {invisible_ms} ms: it is 10 s to 12 hours",
                )
        config, known = self._topics.get(topic), self._groups.get(group)
        if config is not None and not config.perm & PERM_READ:
            raise CallError(SdkCode.FORBIDDEN, "no readable queue")
        in_order = known is not None and known.consume_message_orderly
        expression = request.filter_expression
        now_ms = self._clock.epoch_ms()
        batch = batch_of(request.batch_size)
        if in_order and request.auto_renew and call.language is Language.GO:
            batch = 1  # Go's push consumers work on all they got at once, whatever the group says
        ext = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": "-1",
            "maxMsgNums": str(batch),
            "invisibleTime": str(invisible_ms),
            "pollTime": str(poll_ms),
            "bornTime": str(now_ms),
            "initMode": _INIT_FROM_END,
            "expType": "SQL92" if expression.type == SQL else "TAG",
            "exp": expression.expression or "*",
            "order": "true" if in_order else "false",
            "attemptId": request.attempt_id,
        }
        receive = _Receive(self, call, topic, group, invisible_ms, renewed=request.auto_renew)
        receive.by_tags = expression.type != SQL
        if self._reads_lite(call, group, config):
            self._receive_lite(receive, ext)
            return
        self._asker.ask(call, RequestCode.POP_MESSAGE, ext, receive.popped)

    def take(self, call: Call, data: bytes) -> bool:
        """Answer with what is there now; False: there is nothing, or it goes the slow path."""
        way, asked, lite = self._way, plain_receive(data), self._wants_lite(call.key)
        if asked is None or not way.serves() or lite:
            return False
        if lite is None and has_lite_topics(self._topics.get(asked[0])):
            return False
        topic, group, tags, batch, invisible_ms, renewed = asked
        left_ms, known = call.timeout_ms(), self._groups.get(group)
        if (left_ms is not None and left_ms < POLL_MS_MIN) or known is None:
            return False
        if known.consume_message_orderly or not way.open_to(call, topic, group):
            return False
        receive = _Receive(self, call, topic, group, invisible_ms, renewed=renewed)

        def given(
            reply: Reply, body: bytes, stamp: int, revive: int, starts: dict[int, int]
        ) -> None:
            way.lane.running -= 1
            if reply.code == ResponseCode.SUCCESS:
                self._told(receive, body, f"{stamp} {invisible_ms} {revive}", starts)
            else:
                outcome = AskedResult(reply.code, reply.remark or "", {}, b"", denied=False)
                receive.popped(outcome)

        if not self._pops.take_now(group, topic, ("TAG", tags), batch, invisible_ms, given):
            return False
        way.lane.running += 1
        return True

    def _reads_lite(self, call: Call, group: str, config: TopicConfig | None) -> bool:
        """Whether a client is given lite topics; CallError: nobody knows yet.

        A new master hears receives before clients have said again what they are. Of the topic
        itself they would get all lite topics' messages, those that they have had, too.
        """
        wants = self._wants_lite(call.key)
        if wants is None and has_lite_topics(config):
            wants = self._takes_up((group, call.client_id)) is not None
            if not wants:
                raise CallError(
                    SdkCode.UNRECOGNIZED_CLIENT_TYPE,
                    "no telemetry has said whether this client reads lite topics: ask again",
                )
        return bool(wants)

    def _receive_lite(self, receive: _Receive, ext: dict[str, str]) -> None:
        """Take messages of all lite topics that the client wants."""
        call = receive.call
        if self._renewals.count_of(call.key) > LITE_OUT_MAX:
            raise CallError(
                SdkCode.FORBIDDEN,
                f"the client has more than {LITE_OUT_MAX} unacknowledged messages",
            )
        receive.lite = True
        more = {"clientId": call.client_id, "maxMsgNum": ext["maxMsgNums"]}
        self._asker.ask(call, RequestCode.POP_LITE_MESSAGE, {**ext, **more}, receive.popped)

    def attempts_max(self, group: str) -> int:
        """Return how often a group gets a message before that is given up."""
        return (self._groups.get(group) or GroupConfig(name=group)).attempts

    def told(self, receive: _Receive, outcome: AskedResult) -> None:
        """Answer with messages, or give them back where nobody takes the answer."""
        ext, starts = outcome.ext, dict[int, int]()
        for block in ext.get("startOffsetInfo", "").split(";"):
            words = block.split(" ")
            if len(words) == 3:
                starts[int(words[1])] = int(words[2])
        times = f"{ext['popTime']} {receive.invisible_ms} {ext['reviveQid']}"
        self._told(receive, outcome.body, times, starts)

    def _told(self, receive: _Receive, body: bytes, times: str, starts: dict[int, int]) -> None:
        call, now_ms = receive.call, self._clock.epoch_ms()
        most = self.attempts_max(receive.group)

        def careful(record: bytes, handle: str) -> bytes | None:
            try:
                message = told_message(record, handle, receive.invisible_ms, topic=receive.topic)
            except ProtocolError as error:
                log.warning("message_unreadable topic=%s error=%s", receive.topic, error)
                return None
            system = message.system_properties
            if receive.lite:
                receive.places[handle] = queue_of(receive.topic, system.lite_topic)
            if system.delivery_attempt > most:
                topic = receive.topic_of(handle)
                self._acks.give_up(call, receive.group, topic, parse_handle(handle))
                return None
            return encoded(make("ReceiveMessageResponse", message=message))

        delivery = SharedDelivery(
            starts,
            f"{times} 0 {self._broker_name}",
            _topic_bytes(receive.topic),
            _time_bytes(receive.invisible_ms),
            most,
            _FOUND,
            _delivered_bytes(now_ms),
        )
        answer, handles = told_records(body, delivery, careful)
        if not call.stream.is_open:
            self._give_back(receive, handles)
            return
        if receive.renewed:
            places = receive.places.values() or [receive.topic]
            queues = [(receive.group, place, queue_id) for place in places for queue_id in starts]
            stamp = int(times.partition(" ")[0])
            self._renewals.add(call.key, queues, stamp, now_ms + receive.invisible_ms)
        call.stream.watch(lambda: self._give_back(receive, handles))
        call.send_framed(answer if handles else _NOT_FOUND + answer[len(_FOUND) :])

    def refused(self, call: Call, error: CallError) -> None:
        """Answer with a status, in the form that a stream of answers has."""
        told = make("ReceiveMessageResponse", status=status(error.code, str(error)))
        call.send([told, _delivered(self._clock.epoch_ms())])

    def _give_back(self, receive: _Receive, handles: list[str]) -> None:
        """Let others have what was taken for a call that nobody waits for any more."""
        for told in handles:
            topic = receive.topic_of(told)
            self._acks.hide(receive.call, receive.group, topic, parse_handle(told), 0)


class _Receive:
    """One call while it waits."""

    def __init__(
        self,
        calls: ReceiveCalls,
        call: Call,
        topic: str,
        group: str,
        invisible_ms: int,
        *,
        renewed: bool,
    ) -> None:
        self._calls, self.call = calls, call
        self.topic, self.group = topic, group
        self.invisible_ms, self.renewed = invisible_ms, renewed
        self.by_tags = True
        self.lite = False
        self.places: dict[str, str] = {}
        """Of lite topics: where the message of a handle is."""

    def topic_of(self, handle: str) -> str:
        """Return where the message of a handle is."""
        return self.places.get(handle, self.topic)

    def popped(self, outcome: AskedResult) -> None:
        """Take what the POP has found."""
        if outcome.done:
            self._calls.told(self, outcome)
        elif outcome.code == ResponseCode.POLLING_TIMEOUT:
            text = "no new message"
            self._calls.refused(self.call, CallError(SdkCode.MESSAGE_NOT_FOUND, text))
        elif outcome.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            code = SdkCode.ILLEGAL_FILTER_EXPRESSION if self.by_tags else of_remoting(outcome.code)
            self._calls.refused(self.call, CallError(code, outcome.text))
        else:
            self._calls.refused(self.call, outcome.error())


def polling_ms(call: Call, request: Any) -> int:
    """Return how long a call waits for messages; refuse one that has no time for that."""
    left_ms = call.timeout_ms()
    if request.HasField("long_polling_timeout"):
        asked_ms = milliseconds(request.long_polling_timeout)
    elif left_ms is not None:
        asked_ms = left_ms - REQUEST_MS // 2
    else:
        asked_ms = POLL_MS_MAX
    poll_ms = max(POLL_MS_MIN, min(asked_ms, POLL_MS_MAX))
    if left_ms is None or poll_ms <= left_ms - LEFT_MS:
        return poll_ms
    if left_ms < POLL_MS_MIN:
        version = call.headers.get(heads.CLIENT_VERSION, "")
        code = SdkCode.ILLEGAL_POLLING_TIME if version >= _OLD_CLIENT else SdkCode.BAD_REQUEST
        raise CallError(code, f"the deadline is in {left_ms} ms, a poll lasts at least 5 s")
    return left_ms - LEFT_MS


def _delivered(now_ms: int) -> Any:
    return make("ReceiveMessageResponse", delivery_timestamp=timestamp(now_ms))


@lru_cache(maxsize=1)
def _delivered_bytes(now_ms: int) -> bytes:
    return framed([encoded(_delivered(now_ms))])


@lru_cache(maxsize=256)
def _topic_bytes(topic: str) -> bytes:
    return encoded(told_topic(topic))


@lru_cache(maxsize=256)
def _time_bytes(ms: int) -> bytes:
    return encoded(duration(ms))
