"""The operations that move groups to other offsets."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from imago_client.checks import check_queue, check_text, check_whole
from imago_client.core.administration.administration import body_of, decode
from imago_client.core.administration.shards import no_master
from imago_client.core.consuming import pulling
from imago_client.core.lookup import find_route
from imago_client.errors import BrokerError, HalfDoneError, UsageError
from imago_wire.remoting.bodies.stats import (
    ResetOffsetBody,
)
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.client import (
    ResetOffsetRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_client.core.effects import Operation
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue


class ResetTo(Enum):
    """Where an offset reset goes, beside a time."""

    EARLIEST = "earliest"
    LATEST = "latest"

    @classmethod
    def of(cls, word: str) -> ResetTo:
        """Return the value that a word names. UsageError: it names none."""
        for one in cls:
            if word.lower() == one.value:
                return one
        words = ", ".join(one.value for one in cls)
        raise UsageError(f"reset to {word!r}: must be one of {words}, or a time in ms")


_NOBODY_TO_TELL = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)


def reset_group(
    state: ClientState, group: str, topic: str, to: ResetTo | str | int
) -> Operation[dict[MessageQueue, int]]:
    """Move a group to the beginning, the end, or a time (ms since 1970); return the new offsets.

    The committed offsets are set first. A broker with members connected tells them as well.
    HalfDoneError: a shard with queues of the topic is away, and the group is there as it was.
    """
    check_text("group", group)
    to = _checked_target(to)
    moved = yield from reset_targets(state, topic, to)
    for queue, offset in moved.items():
        yield from pulling.commit(state, group, queue, offset)
    route = yield from find_route(state, topic)
    for address in route.masters():
        yield from _tell_members(state, address, _reset_header(group, topic, to))
    away = tuple(sorted({queue.shard for queue in route.lost_queues}))
    if away:
        done = sorted({queue.shard for queue in moved})
        raise HalfDoneError(f"group {group} in {topic}", done, no_master(away), away=away)
    return moved


def move_group(
    state: ClientState, group: str, offsets: Mapping[MessageQueue, int]
) -> Operation[None]:
    """Have a group go on at these offsets in these queues; its members, too.

    Brokers of RocketMQ before 5 know no single queues: what members have there they do not hear.
    """
    check_text("group", group)
    for queue, offset in offsets.items():
        check_queue(queue)
        check_whole("offset", offset, 0)
    for queue, offset in offsets.items():
        yield from pulling.commit(state, group, queue, offset)
        route = yield from find_route(state, queue.topic)
        asked = ResetOffsetRequestHeader(
            group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            timestamp=0,
            is_force=True,
        )
        yield from _tell_members(state, route.master(queue.shard), asked)


def reset_targets(
    state: ClientState, topic: str, to: ResetTo | str | int
) -> Operation[dict[MessageQueue, int]]:
    """Return where a reset would put a group in each queue of a topic; nothing is changed."""
    check_text("topic", topic)
    to = _checked_target(to)
    state.drop_route(topic)
    route = yield from find_route(state, topic)
    found: dict[MessageQueue, int] = {}
    for queue in route.read_queues:
        found[queue] = yield from _target(state, queue, to)
    return found


def _checked_target(to: ResetTo | str | int) -> ResetTo | int:
    if isinstance(to, str):
        return ResetTo.of(to)
    if not isinstance(to, ResetTo):
        check_whole("to", to, 0)
    return to


def _target(state: ClientState, queue: MessageQueue, to: ResetTo | int) -> Operation[int]:
    if to is ResetTo.EARLIEST:
        return (yield from pulling.min_offset(state, queue))
    if to is ResetTo.LATEST:
        return (yield from pulling.max_offset(state, queue))
    return (yield from pulling.offset_at(state, queue, to))


def _reset_header(group: str, topic: str, to: ResetTo | int) -> ResetOffsetRequestHeader:
    timestamp = {ResetTo.EARLIEST: 0, ResetTo.LATEST: -1}.get(to) if isinstance(to, ResetTo) else to
    return ResetOffsetRequestHeader(
        group=group, topic=topic, timestamp=timestamp or 0, is_force=True
    )


def _tell_members(
    state: ClientState, address: str, asked: ResetOffsetRequestHeader
) -> Operation[None]:
    try:
        body = yield from body_of(state, address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, asked)
    except BrokerError as error:
        if error.code not in _NOBODY_TO_TELL:
            raise
        return
    decode(ResetOffsetBody, address, body)
