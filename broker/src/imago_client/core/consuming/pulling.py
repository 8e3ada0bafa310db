"""The pull operation, and those on offsets of a queue."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from imago_client.checks import check_queue, check_seconds, check_whole
from imago_client.core.effects import Oneway, Operation, Request, ask, ask_ok
from imago_client.core.failover import through_failover
from imago_client.core.lookup import find_route
from imago_client.core.routing import MASTER_ID
from imago_client.errors import AnswerError, BrokerError, ClientError, NoMasterError, TryAgainError
from imago_client.message_queue import MessageQueue
from imago_client.messages import PullStatus, QueueEnd, ShardBounds
from imago_client.received import Pulled
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.config import SubscriptionGroupConfig
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.fields import Header, Long, header
from imago_wire.remoting.headers.pull import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullFlag,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

if TYPE_CHECKING:
    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.state import ClientState
    from imago_wire.remoting.command import RemotingCommand

H = TypeVar("H", bound=Header)


@header
class BulkPullRequestHeader(PullMessageRequestHeader):
    """A pull that an Imago broker answers with up to 10,000 messages and `max_msg_bytes`.

    RocketMQ's own brokers pass over the field and answer with at most 32 messages or 256 KiB.
    """

    imago_batch: bool = True


@header
class EndRequestHeader(GetMaxOffsetRequestHeader):
    """A question for a queue's end that an Imago broker answers with topic and cluster too.

    RocketMQ's own brokers pass over the field.
    """

    imago_incarnation: bool = True


@header
class BoundsRequestHeader(EndRequestHeader):
    """The same question for the queues from one on, that the answer's body holds.

    Other brokers answer without a body.
    """

    imago_bounds: bool = True


@header
class EndResponseHeader(GetMaxOffsetResponseHeader):
    imago_incarnation: Long | None = None
    imago_topic_id: Long | None = None
    imago_cluster_id: str | None = None


USUAL_MESSAGES_MAX: Final = 32
"""What RocketMQ's own brokers give in one answer at most."""
BULK_BYTES: Final = 512 << 10
"""What group members ask an Imago broker for at most, in one answer."""
_ANSWER_MARGIN_S: Final = 15.0
"""A held pull is answered when its hold ends; this much later the answer counts as lost."""
_REDIRECT_FIELD: Final = "imagoNotMaster"
"""In the answer of an Imago broker that serves no pulls now: another is the master."""
_BOUNDS: Final = struct.Struct(">qq")
_STATUS_CODES: Final = frozenset(int(status) for status in PullStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullArguments:
    """One pull: at most `messages_max` messages of a queue from `offset` on."""

    group: str
    queue: MessageQueue
    offset: int
    subscription: Subscription
    messages_max: int = 32
    bulk_bytes: int | None = None
    """Ask for up to so many bytes in one answer, where the broker knows bulk pulls."""
    poll_s: float = 0.0
    """Let the broker hold the request so long if there is nothing."""
    commit_offset: int | None = None
    """Commit this offset for the group on the way."""
    read_from: int = MASTER_ID
    """Broker id of the member to ask: what the answer before suggested."""

    def __post_init__(self) -> None:
        check_whole("offset", self.offset, 0)
        check_whole("messages_max", self.messages_max, 1)
        check_seconds("poll_s", self.poll_s)
        if self.bulk_bytes is not None:
            check_whole("bulk_bytes", self.bulk_bytes, 1)


def bulk_bytes(messages_max: int) -> int | None:
    """Return how much a group's member asks for in one answer; None: as RocketMQ's clients do."""
    return BULK_BYTES if messages_max > USUAL_MESSAGES_MAX else None


def pull(state: ClientState, asked: PullArguments) -> Operation[Pulled]:
    """Pull once, from the queue's current broker.

    Any error drops the route, so that the next pull finds a new master.
    """
    members = [asked]

    def attempt() -> Operation[Pulled]:
        member = members.pop() if members else replace(asked, read_from=MASTER_ID)
        return _pull_once(state, member)

    return (yield from through_failover(state, asked.queue.topic, attempt))


def _pull_once(state: ClientState, asked: PullArguments) -> Operation[Pulled]:
    request = yield from pull_request(state, asked)
    try:
        answer = yield from ask(request)
    except TryAgainError:
        state.drop_route(asked.queue.topic)
        raise
    return read_pulled(state, asked.queue, request.address, answer)


def pull_request(state: ClientState, asked: PullArguments) -> Operation[Request]:
    """Return the request of a pull, addressed to the broker that is to answer it."""
    route = yield from find_route(state, asked.queue.topic)
    return Request(
        route.reader(asked.queue.shard, asked.read_from),
        RequestCode.PULL_MESSAGE,
        _pull_header(asked),
        timeout_s=asked.poll_s + _ANSWER_MARGIN_S,
    )


def read_pulled(
    state: ClientState, queue: MessageQueue, address: str, answer: RemotingCommand
) -> Pulled:
    """Read the answer to a pull. BrokerError: it is a refusal. NoMasterError: ask another."""
    if _REDIRECT_FIELD in answer.ext:
        state.drop_route(queue.topic)
        raise NoMasterError(queue.topic, queue.shard)
    if answer.code not in _STATUS_CODES:
        state.drop_route(queue.topic)
        raise BrokerError(address, answer.code, answer.remark or "")
    return _pulled(queue, address, answer)


def _pull_header(asked: PullArguments) -> PullMessageRequestHeader:
    flags = PullFlag.SUBSCRIPTION
    if asked.poll_s > 0:
        flags |= PullFlag.SUSPEND
    if asked.commit_offset is not None:
        flags |= PullFlag.COMMIT_OFFSET
    kind = PullMessageRequestHeader if asked.bulk_bytes is None else BulkPullRequestHeader
    return kind(
        consumer_group=asked.group,
        topic=asked.queue.topic,
        queue_id=asked.queue.queue_id,
        queue_offset=asked.offset,
        max_msg_nums=asked.messages_max,
        sys_flag=int(flags),
        commit_offset=asked.commit_offset or 0,
        suspend_timeout_millis=int(asked.poll_s * 1000),
        subscription=asked.subscription.expression,
        sub_version=asked.subscription.version,
        expression_type=asked.subscription.kind,
        max_msg_bytes=asked.bulk_bytes,
    )


def _pulled(queue: MessageQueue, address: str, answer: RemotingCommand) -> Pulled:
    told = read_header(PullMessageResponseHeader, address, answer)
    return Pulled(
        PullStatus(answer.code),
        queue,
        told.next_begin_offset,
        told.min_offset,
        told.max_offset,
        answer.body if answer.code == ResponseCode.SUCCESS else b"",
        told.suggest_which_broker_id,
        answer.remark or "",
    )


def moved_text(pulled: Pulled, asked: int) -> str:
    """Return what is noted of a pull that found its place gone: where it goes on, and why."""
    return (
        f"queue={pulled.queue} asked={asked} continues_at={pulled.next_offset}"
        f" reason={pulled.remark!r}"
    )


def min_offset(state: ClientState, queue: MessageQueue) -> Operation[int]:
    """Return the first offset that still exists."""
    check_queue(queue)
    wanted = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    address, answer = yield from ask_master(state, queue, RequestCode.GET_MIN_OFFSET, wanted)
    return read_header(GetMinOffsetResponseHeader, address, answer).offset


def max_offset(state: ClientState, queue: MessageQueue) -> Operation[int]:
    """Return the offset that the next message of the queue will get."""
    check_queue(queue)
    wanted = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    address, answer = yield from ask_master(state, queue, RequestCode.GET_MAX_OFFSET, wanted)
    return read_header(GetMaxOffsetResponseHeader, address, answer).offset


def queue_end(state: ClientState, queue: MessageQueue) -> Operation[QueueEnd]:
    """Return the same, and which topic of the name it is."""
    check_queue(queue)
    wanted = EndRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    address, answer = yield from ask_master(state, queue, RequestCode.GET_MAX_OFFSET, wanted)
    told = read_header(EndResponseHeader, address, answer)
    return QueueEnd(told.offset, told.imago_incarnation, told.imago_topic_id, told.imago_cluster_id)


def shard_bounds(
    state: ClientState, topic: str, shard: str, count: int
) -> Operation[ShardBounds | None]:
    """Return the bounds of a topic's first queues on one shard; None: the broker cannot say it so.

    At least `count` queues, if there are so many. An answer holds a few thousand of them.
    """
    check_whole("count", count, 1)
    check_queue(MessageQueue(topic, shard, 0))
    queues: list[tuple[int, int]] = []
    first: tuple[int | None, int | None, str | None] | None = None
    while True:
        asked = MessageQueue(topic, shard, len(queues))
        wanted = BoundsRequestHeader(topic=topic, queue_id=asked.queue_id)
        address, answer = yield from ask_master(
            state, asked, RequestCode.GET_MAX_OFFSET, wanted, ResponseCode.NOT_LEADER_FOR_QUEUE
        )
        if answer.code != ResponseCode.SUCCESS:
            return None  # a static topic, whose queues are anywhere
        told = read_header(EndResponseHeader, address, answer)
        made = told.imago_incarnation, told.imago_topic_id, told.imago_cluster_id
        if first is not None and made != first:
            queues, first = [], None  # made anew in between
            continue
        first = made
        try:
            queues += _BOUNDS.iter_unpack(answer.body)
        except struct.error:
            raise AnswerError(address, "bounds of queues: not 16 bytes each") from None
        if not answer.body or len(queues) >= count:
            return ShardBounds(tuple(queues), *made) if queues else None


def incarnation(state: ClientState, queue: MessageQueue) -> Operation[int | None]:
    """Return which topic of its name the queue is of, asked once; None: nobody says it now."""
    wanted = EndRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    try:
        route = yield from find_route(state, queue.topic)
        address, timeout_s = route.master(queue.shard), state.config.request_timeout_s
        request = Request(address, RequestCode.GET_MAX_OFFSET, wanted, timeout_s=timeout_s)
        answer = yield from ask_ok(request)
        return read_header(EndResponseHeader, address, answer).imago_incarnation
    except ClientError:
        return None


def offset_at(state: ClientState, queue: MessageQueue, timestamp_ms: int) -> Operation[int]:
    """Return the offset of the first message stored at `timestamp_ms` or later."""
    check_queue(queue)
    check_whole("timestamp_ms", timestamp_ms, 0)
    wanted = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
    )
    address, answer = yield from ask_master(
        state, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, wanted
    )
    return read_header(SearchOffsetResponseHeader, address, answer).offset


def committed_offset(state: ClientState, group: str, queue: MessageQueue) -> Operation[int | None]:
    """Return the offset a group has committed, None if it never did."""
    check_queue(queue)
    wanted = QueryConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        # Else a broker says 0 where the queue is young, which the Java clients rely on.
        set_zero_if_not_found=False,
    )
    address, answer = yield from ask_master(
        state, queue, RequestCode.QUERY_CONSUMER_OFFSET, wanted, ResponseCode.QUERY_NOT_FOUND
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return read_header(QueryConsumerOffsetResponseHeader, address, answer).offset


def commit(
    state: ClientState, group: str, queue: MessageQueue, offset: int, *, wait: bool = True
) -> Operation[None]:
    """Commit a group's offset: everything below it is consumed. `wait`: until it is taken."""
    check_queue(queue)
    check_whole("offset", offset, 0)
    wanted = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    if not wait:
        route = yield from find_route(state, queue.topic)
        yield Oneway(route.master(queue.shard), RequestCode.UPDATE_CONSUMER_OFFSET, wanted)
        return
    address, answer = yield from ask_master(
        state,
        queue,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        wanted,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    )
    if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        # Brokers make a group at its first pull or heart beat; whoever only commits comes first.
        made = SubscriptionGroupConfig(group_name=group).encode(standard=True)
        timeout_s = state.config.request_timeout_s
        create = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        yield from ask_ok(Request(address, create, body=made, timeout_s=timeout_s))
        yield from ask_master(state, queue, RequestCode.UPDATE_CONSUMER_OFFSET, wanted)


def ask_master(
    state: ClientState, queue: MessageQueue, code: int, wanted: Header, *accepted: int
) -> Operation[tuple[str, RemotingCommand]]:
    """Ask the master of a queue's shard, and the next one where that has changed."""

    def attempt() -> Operation[tuple[str, RemotingCommand]]:
        route = yield from find_route(state, queue.topic)
        address = route.master(queue.shard)
        request = Request(address, code, wanted, timeout_s=state.config.request_timeout_s)
        return address, (yield from ask_ok(request, *accepted))

    try:
        return (yield from through_failover(state, queue.topic, attempt))
    except TryAgainError:
        state.drop_route(queue.topic)
        raise


def read_header(kind: type[H], address: str, answer: RemotingCommand) -> H:
    try:
        return kind.from_ext(answer.ext)
    except ProtocolError as error:
        raise AnswerError(address, str(error)) from None
