"""Operations of administration on topics, messages and the cluster."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from imago_client.checks import check_text, check_whole
from imago_client.core.administration.shards import reach_having
from imago_client.core.effects import Operation, Request, ask_ok
from imago_client.core.lookup import (
    ask_name_service,
    find_route,
)
from imago_client.core.routing import MASTER_ID
from imago_client.errors import (
    AnswerError,
    ConnectionLostError,
    HalfDoneError,
    RequestTimeoutError,
)
from imago_client.message_queue import MessageQueue
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.fields import Body
from imago_wire.remoting.bodies.stats import TopicStatsTable
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.admin import (
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from imago_wire.remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from imago_wire.remoting.headers.pull import QueryMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imago_client.core.state import ClientState
    from imago_client.received import ReceivedMessage
    from imago_wire.remoting.bodies.client import MessageQueue as WireQueue
    from imago_wire.remoting.fields import Header

B = TypeVar("B", bound=Body)

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_READ_WRITE: Final = 6


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """What a queue holds: offsets from `min_offset` up to, not including, `max_offset`."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    updated_ms: int
    """When its last message was stored, ms since 1970; 0 for an empty queue."""
    size_bytes: int | None = None
    """About what they take on disk; None: nobody asked, or the broker cannot say."""


@contextmanager
def half_done(subject: str, done: Sequence[str]) -> Iterator[None]:
    """Say of a change that a master did not answer where it is made: on the shards `done`."""
    try:
        yield
    except (ConnectionLostError, RequestTimeoutError) as error:
        raise HalfDoneError(subject, done, error) from error


def delete_topic(state: ClientState, topic: str) -> Operation[None]:
    """Delete a topic with its messages' queues and all groups' offsets of it."""
    check_text("topic", topic)
    deleted = DeleteTopicRequestHeader(topic=topic)
    done: list[str] = []
    found = yield from reach_having(state, topic)
    for shard, address in found.masters.items():
        with half_done(f"topic {topic}", done):
            yield from body_of(state, address, RequestCode.DELETE_TOPIC_IN_BROKER, deleted)
        done.append(shard)
    found.end(f"topic {topic}", done)  # before it is forgotten who has it still
    unlisted = DeleteTopicFromNamesrvRequestHeader(topic=topic)
    yield from ask_name_service(state, RequestCode.DELETE_TOPIC_IN_NAMESRV, unlisted)
    state.drop_route(topic)


def topic_bounds(
    state: ClientState, topic: str, *, sizes: bool = False
) -> Operation[list[QueueBounds]]:
    """Return what each queue of a topic holds, sorted; with `sizes` also in bytes."""
    check_text("topic", topic)
    state.drop_route(topic)
    route = yield from find_route(state, topic)
    found: list[QueueBounds] = []
    for address in route.masters():
        asked = GetTopicStatsInfoRequestHeader(topic=topic, sizes=sizes or None)
        body = yield from body_of(state, address, RequestCode.GET_TOPIC_STATS_INFO, asked)
        found += [
            QueueBounds(
                from_wire(queue),
                offset.min_offset,
                offset.max_offset,
                offset.last_update_timestamp,
                offset.size,
            )
            for queue, offset in decode(TopicStatsTable, address, body).offset_table.items()
        ]
    return sorted(found, key=lambda bounds: bounds.queue)


def messages_by_key(
    state: ClientState, topic: str, key: str, *, count_max: int, begin_ms: int, end_ms: int
) -> Operation[list[ReceivedMessage]]:
    """Return the messages of a topic with a key (or unique id), from every shard, oldest first."""
    check_text("topic", topic)
    check_text("key", key)
    check_whole("count_max", count_max, 1)
    check_whole("begin_ms", begin_ms, 0)
    check_whole("end_ms", end_ms, 0)
    route = yield from find_route(state, topic)
    asked = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=count_max,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
        unique_key=False,
    )
    found: list[ReceivedMessage] = []
    for shard, brokers in sorted(route.addresses.items()):
        if MASTER_ID in brokers:
            found += yield from _messages_of(state, shard, brokers[MASTER_ID], asked)
    found.sort(key=lambda message: message.stored.store_ms)
    return found[:count_max]


def _messages_of(
    state: ClientState, shard: str, address: str, asked: QueryMessageRequestHeader
) -> Operation[list[ReceivedMessage]]:
    # Whoever administers seldom reads: what knows records is loaded then.
    from imago_client.received import INFLATED_BYTES_MAX, received
    from imago_wire.remoting.messages import decode_messages

    timeout_s = state.config.request_timeout_s
    request = Request(address, RequestCode.QUERY_MESSAGE, asked, timeout_s=timeout_s)
    answer = yield from ask_ok(request, ResponseCode.QUERY_NOT_FOUND)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    found, room = [], INFLATED_BYTES_MAX
    for stored in decode_messages(answer.body, inflate=False):
        # The index knows hashes only: another key may share one.
        if asked.key in stored.keys or asked.key == stored.unique_key:
            queue = MessageQueue(stored.topic, shard, stored.queue_id)
            found.append(received(queue, stored, room))
            room -= found[-1].inflated_bytes
    return found


def body_of(
    state: ClientState, address: str, code: int, asked: Header | None, body: bytes = b""
) -> Operation[bytes]:
    """Ask one broker; return the body of its answer. BrokerError: it refused."""
    timeout_s = state.config.request_timeout_s
    answer = yield from ask_ok(Request(address, code, asked, body, timeout_s=timeout_s))
    return answer.body


def decode(kind: type[B], address: str, body: bytes) -> B:
    """Read a body. AnswerError: it is not of its kind."""
    try:
        return kind.decode(body)
    except ProtocolError as error:
        raise AnswerError(address, str(error)) from None


def from_wire(queue: WireQueue) -> MessageQueue:
    """Return a queue as this package names it."""
    return MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
