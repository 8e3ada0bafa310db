"""The operations of POP: take messages for a while, acknowledge them, hide them for longer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from imago_client.checks import check_seconds, check_whole, refuse
from imago_client.core.effects import Operation, Pause, Request, ask, ask_ok
from imago_client.core.failover import is_failover, through_failover
from imago_client.core.lookup import find_route
from imago_client.errors import (
    AnswerError,
    BrokerError,
    ClientError,
    NoMasterError,
    TryAgainError,
)
from imago_client.message_queue import MessageQueue
from imago_client.naming import RETRY_PREFIX
from imago_client.received import INFLATED_BYTES_MAX, ReceivedMessage, log_unreadable, received
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as names
from imago_wire.records.stored import decode_record
from imago_wire.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody, ack_bits
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from imago_wire.remoting.texts.handles import PopReceipt, parse_pop_receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.routing import TopicRoute
    from imago_client.core.state import ClientState
    from imago_client.errors import BodyError
    from imago_wire.records.stored import StoredMessage
    from imago_wire.remoting.command import RemotingCommand

MESSAGES_MAX: Final = 32
"""Brokers give no more at once."""
INVISIBLE_S_MAX: Final = 7 * 86_400.0
SHARE_S: Final = 1.0
"""How long one shard of several is waited at before the next one is."""
_ANSWER_MARGIN_S: Final = 15.0
"""A waiting POP is answered when its time is up; this much later the answer counts as lost."""
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
_ANY_QUEUE: Final = -1
_FROM_BEGINNING, _FROM_END = 0, 1
_NOTHING: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.POLLING_TIMEOUT,
)
_TOPIC_ITSELF: Final = "0"
_RETRY_JOINTS: Final = {"1": "_", "2": "+"}
"""What RocketMQ's own brokers put between group and topic in the name of a POP retry topic."""


class PoppedMessage(ReceivedMessage):
    """A message that nobody else of the group gets until its time is up, and the receipt for it."""

    __slots__ = ("receipt",)
    receipt: PopReceipt

    def __init__(
        self,
        queue: MessageQueue,
        topic: str,
        stored: StoredMessage,
        error: BodyError | None = None,
        *,
        receipt: PopReceipt,
    ) -> None:
        super().__init__(queue, topic, stored, error)
        object.__setattr__(self, "receipt", receipt)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _remade, self._parts()

    def _parts(self) -> tuple[object, ...]:
        return (*super()._parts(), self.receipt)


def _remade(
    queue: MessageQueue,
    topic: str,
    stored: StoredMessage,
    error: BodyError | None,
    receipt: PopReceipt,
) -> PoppedMessage:
    """Make a message anew, as pickle does."""
    return PoppedMessage(queue, topic, stored, error, receipt=receipt)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopArguments:
    """What one POP asks for."""

    group: str
    subscription: Subscription
    messages_max: int
    invisible_s: float
    poll_s: float
    in_order: bool
    from_end: bool

    def __post_init__(self) -> None:
        check_whole("messages_max", self.messages_max, 1, MESSAGES_MAX)
        check_seconds("poll_s", self.poll_s)
        _check_invisible(self.invisible_s)


class ShardRotation:
    """Which shard is asked first, another one each time."""

    def __init__(self, start: int) -> None:
        self._next = start

    def rotate(self, shards: Sequence[str]) -> list[str]:
        """Return the shards, the next one first."""
        self._next += 1
        first = self._next % max(1, len(shards))
        return [*shards[first:], *shards[:first]]


def pop(
    state: ClientState, asked: PopArguments, turns: ShardRotation
) -> Operation[list[PoppedMessage]]:
    """Take messages of one shard, whichever has some; none if none came within `poll_s`.

    All shards are asked at once whether they have some, then waited at in turn. A shard without a
    master is passed over; where all are, a master is waited for as by pulls.
    """
    deadline_s = state.clock_s() + asked.poll_s
    patient_until_s = max(deadline_s, state.clock_s() + state.patience_s)
    pause_s, is_first = _PAUSE_S, True
    while True:
        looked = yield from _look_round(state, asked, turns, deadline_s, is_first=is_first)
        if looked.messages:
            size = sum(message.stored.size for message in looked.messages)
            state.watch.received(len(looked.messages), size)
            state.watch.after_receive(asked.group, looked.messages)
            return looked.messages
        now_s = state.clock_s()
        if looked.answered and now_s >= deadline_s:
            return []
        if not looked.answered and now_s >= patient_until_s:
            raise looked.error or NoMasterError(asked.subscription.topic, "of the topic")
        if looked.is_full or not looked.answered:
            yield Pause(pause_s)
            pause_s = min(_PAUSE_S_MAX, 2 * pause_s)
        is_first = False


@dataclass(slots=True)
class _Round:
    """What came of asking every shard once."""

    messages: list[PoppedMessage]
    answered: bool = False
    """Whether any shard did."""
    is_full: bool = False
    """Whether one refused to let one more wait."""
    error: ClientError | None = None

    def note(self, state: ClientState, topic: str, error: ClientError) -> None:
        """Keep the error of one shard that others may make good, or raise it."""
        code = error.code if isinstance(error, BrokerError) else 0
        if code == ResponseCode.POLLING_FULL:
            self.answered = self.is_full = True
            return
        if not isinstance(error, TryAgainError) and not is_failover(error):
            raise error
        state.drop_route(topic)
        self.error = error


def _look_round(
    state: ClientState,
    asked: PopArguments,
    turns: ShardRotation,
    deadline_s: float,
    *,
    is_first: bool,
) -> Operation[_Round]:
    """Ask the shards one after the other, up to the first that has messages."""
    topic, looked = asked.subscription.topic, _Round([])
    route: TopicRoute = yield from find_route(state, topic)
    shards = sorted({queue.shard for queue in (*route.read_queues, *route.lost_queues)})
    for shard in turns.rotate(shards):
        left_s = max(0.0, deadline_s - state.clock_s())
        share_s = left_s if len(shards) == 1 else 0.0 if is_first else min(left_s, SHARE_S)
        try:
            looked.messages = yield from _pop_of(state, asked, route, shard, share_s)
            looked.answered = True
        except (TryAgainError, BrokerError) as error:
            looked.note(state, topic, error)
        if looked.messages:
            break
    return looked


def acknowledge(
    state: ClientState, group: str, messages: Iterable[PoppedMessage]
) -> Operation[None]:
    """Say that messages are consumed: one request a shard, made again while a master is sought."""
    by_shard: dict[tuple[str, str], list[PoppedMessage]] = {}
    if not isinstance(messages, Iterable):
        raise refuse("messages", messages, "a list of messages, as `pop` returned them")
    for message in messages:
        _check_popped("messages", message)
        by_shard.setdefault((message.topic, message.queue.shard), []).append(message)
    for (topic, shard), of_shard in by_shard.items():
        yield from _acknowledge_at(state, group, topic, shard, of_shard)


def postpone(
    state: ClientState, group: str, message: PoppedMessage, invisible_s: float
) -> Operation[PoppedMessage]:
    """Hide a message for so long from now on; return it with the receipt that counts now.

    BrokerError: the receipt counts no more, the message is acknowledged or was given anew.
    """
    _check_popped("message", message)
    _check_invisible(invisible_s, least=0.0)
    receipt, shard = message.receipt, message.queue.shard
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=_real_topic(group, message),
        queue_id=receipt.queue_id,
        extra_info=str(receipt),
        offset=receipt.queue_offset,
        invisible_time=round(invisible_s * 1000),
    )

    def attempt() -> Operation[RemotingCommand]:
        route = yield from find_route(state, message.topic)
        code, timeout_s = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, state.config.request_timeout_s
        return (yield from ask_ok(Request(route.master(shard), code, header, timeout_s=timeout_s)))

    answer = yield from through_failover(state, message.topic, attempt)
    try:
        changed = ChangeInvisibleTimeResponseHeader.from_ext(answer.ext)
    except ProtocolError as error:
        raise AnswerError(shard, str(error)) from None
    new = replace(
        receipt,
        start_offset=receipt.queue_offset,
        pop_time=changed.pop_time,
        invisible_time=changed.invisible_time,
        revive_queue_id=changed.revive_qid,
    )
    return PoppedMessage(message.queue, message.topic, message.stored, message.error, receipt=new)


def _check_invisible(invisible_s: float, least: float = 0.001) -> None:
    check_seconds("invisible_s", invisible_s, least, INVISIBLE_S_MAX)


def _check_popped(what: str, message: object) -> None:
    if not isinstance(message, PoppedMessage):
        raise refuse(what, message, "what `pop` returned")


def _pop_of(
    state: ClientState, asked: PopArguments, route: TopicRoute, shard: str, poll_s: float
) -> Operation[list[PoppedMessage]]:
    """Take messages of one shard; those that only look like the tags wanted are done with."""
    wanted = asked.subscription
    header = PopMessageRequestHeader(
        consumer_group=asked.group,
        topic=wanted.topic,
        queue_id=_ANY_QUEUE,
        max_msg_nums=asked.messages_max,
        invisible_time=round(asked.invisible_s * 1000),
        poll_time=round(poll_s * 1000),
        born_time=0,  # by the broker's clock
        init_mode=_FROM_END if asked.from_end else _FROM_BEGINNING,
        exp_type=wanted.kind,
        exp=wanted.expression,
        order=asked.in_order,
    )
    address = route.master(shard)
    timeout_s = poll_s + _ANSWER_MARGIN_S
    answer = yield from ask(Request(address, RequestCode.POP_MESSAGE, header, timeout_s=timeout_s))
    if answer.code in _NOTHING:
        return []
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(address, answer.code, answer.remark or "")
    try:
        popped = list(_popped(wanted.topic, shard, answer))
    except ProtocolError as error:
        raise AnswerError(address, str(error)) from None
    passed = [message for message in popped if not wanted.accepts(message.tags)]
    if passed:
        yield from acknowledge(state, asked.group, passed)
    return [message for message in popped if wanted.accepts(message.tags)]


def _popped(topic: str, shard: str, answer: RemotingCommand) -> Iterator[PoppedMessage]:
    header = PopMessageResponseHeader.from_ext(answer.ext)
    starts = {queue_id: int(first) for queue_id, first in _blocks(header.start_offset_info)}
    room, at = INFLATED_BYTES_MAX, 0
    while at < len(answer.body):
        stored = decode_record(answer.body, at)
        at += stored.size
        receipt = _receipt(header, starts, shard, stored)
        message = received(MessageQueue(topic, shard, stored.queue_id), stored, room)
        if message.error is not None:
            log_unreadable(message)
        room -= message.inflated_bytes
        yield PoppedMessage(message.queue, topic, message.stored, message.error, receipt=receipt)


def _receipt(
    header: PopMessageResponseHeader, starts: dict[int, int], shard: str, stored: StoredMessage
) -> PopReceipt:
    first = starts.get(stored.queue_id)
    if first is None:  # of a retry topic of RocketMQ's own brokers: it comes with its receipt
        return parse_pop_receipt(stored.properties.get(names.POP_CK, ""))
    return PopReceipt(
        first,
        header.pop_time,
        header.invisible_time,
        header.revive_qid,
        _TOPIC_ITSELF,
        shard,
        stored.queue_id,
        stored.queue_offset,
    )


def _blocks(text: str | None) -> Iterator[tuple[int, str]]:
    """Read `<retry> <queue> <value>` joined with `;`, those of the topic itself."""
    for block in (text or "").split(";"):
        match block.split(" "):
            case [retry, queue_id, value] if queue_id.isdecimal() and value.isdecimal():
                if retry == _TOPIC_ITSELF:
                    yield int(queue_id), value
            case [""]:
                continue
            case _:
                raise ProtocolError(f"startOffsetInfo {text!r} is no list of offsets")


def _acknowledge_at(
    state: ClientState, group: str, topic: str, shard: str, messages: Sequence[PoppedMessage]
) -> Operation[None]:
    def attempt() -> Operation[RemotingCommand]:
        route = yield from find_route(state, topic)
        request = _acknowledgement(route.master(shard), group, shard, messages)
        timeout_s = state.config.request_timeout_s
        return (yield from ask_ok(replace(request, timeout_s=timeout_s)))

    yield from through_failover(state, topic, attempt)


def _acknowledgement(
    address: str, group: str, shard: str, messages: Sequence[PoppedMessage]
) -> Request:
    if len(messages) == 1:
        (message,) = messages
        receipt = message.receipt
        header = AckMessageRequestHeader(
            consumer_group=group,
            topic=_real_topic(group, message),
            queue_id=receipt.queue_id,
            extra_info=str(receipt),
            offset=receipt.queue_offset,
        )
        return Request(address, RequestCode.ACK_MESSAGE, header)
    deliveries: dict[tuple[str, PopReceipt], list[int]] = {}
    for message in messages:
        delivery = replace(message.receipt, queue_offset=-1)
        offsets = deliveries.setdefault((_real_topic(group, message), delivery), [])
        offsets.append(message.receipt.queue_offset)
    acks = tuple(
        BatchAck(
            bits=ack_bits(one.start_offset, offsets),
            consumer_group=group,
            invisible_time=one.invisible_time,
            pop_time=one.pop_time,
            queue_id=one.queue_id,
            retry=one.retry,
            revive_queue_id=one.revive_queue_id,
            start_offset=one.start_offset,
            topic=topic if one.retry == _TOPIC_ITSELF else messages[0].topic,
        )
        for (topic, one), offsets in deliveries.items()
    )
    body = BatchAckMessageRequestBody(acks=acks, broker_name=shard).encode(standard=True)
    return Request(address, RequestCode.BATCH_ACK_MESSAGE, body=body)


def _real_topic(group: str, message: PoppedMessage) -> str:
    joint = _RETRY_JOINTS.get(message.receipt.retry)
    return message.topic if joint is None else f"{RETRY_PREFIX}{group}{joint}{message.topic}"
