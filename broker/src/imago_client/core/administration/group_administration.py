"""Operations of administration on consumer groups and their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from imago_client.checks import check_kind, check_queue, check_text, check_whole
from imago_client.core.administration.administration import (
    body_of,
    decode,
    from_wire,
    half_done,
    masters,
    no_master,
    reach,
)
from imago_client.core.consuming import pulling
from imago_client.core.effects import Request, ask_ok
from imago_client.core.lookup import find_route
from imago_client.errors import BrokerError, ClientError, HalfDoneError, UsageError
from imago_client.message_queue import MessageQueue
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.client import ConsumerConnection, ConsumerRunningInfo
from imago_wire.remoting.bodies.config import SubscriptionGroupConfig, SubscriptionGroupWrapper
from imago_wire.remoting.bodies.pop import SetMessageRequestModeRequestBody
from imago_wire.remoting.bodies.stats import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    QueryConsumeTimeSpanBody,
    ResetOffsetBody,
)
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from imago_wire.remoting.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_client.core.effects import Operation
    from imago_client.core.state import ClientState
    from imago_wire.remoting.fields import Header


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group's place in one queue."""

    queue: MessageQueue
    committed: int
    max_offset: int
    consumed_ms: int
    """When the last consumed message was stored, ms since 1970; 0 for none."""

    @property
    def lag(self) -> int:
        """How many messages the group has still to read (gaps count as messages)."""
        return max(0, self.max_offset - self.committed)


@dataclass(frozen=True, slots=True)
class Member:
    """A connected client of a group."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Who is in a group, what it reads, how far it is."""

    group: str
    members: tuple[Member, ...]
    subscriptions: Mapping[str, str]
    """Topic -> TAG expression, of the members that are connected."""
    progress: tuple[GroupProgress, ...]


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


def groups(state: ClientState) -> Operation[dict[str, SubscriptionGroupConfig]]:
    """Return the settings of all groups, sorted by name (of one shard where they differ)."""
    found: dict[str, SubscriptionGroupConfig] = {}
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    for address in (yield from masters(state)).values():
        body = yield from body_of(state, address, code, None)
        wrapper = decode(SubscriptionGroupWrapper, address, body)
        found |= wrapper.subscription_group_table
    return dict(sorted(found.items()))


def committed_offsets(state: ClientState) -> Operation[dict[str, dict[MessageQueue, int]]]:
    """Return the offsets that all groups have committed, of all shards that have a master."""
    found: dict[str, dict[MessageQueue, int]] = {}
    for shard, address in (yield from masters(state)).items():
        body = yield from body_of(state, address, RequestCode.GET_ALL_CONSUMER_OFFSET, None)
        table = decode(ConsumerOffsetSerializeWrapper, address, body).offset_table
        for name, queues in table.items():
            topic, _, group = name.partition("@")
            places = found.setdefault(group, {})
            places |= {MessageQueue(topic, shard, int(key)): at for key, at in queues.items()}
    return found


def group_settings(state: ClientState, group: str) -> Operation[SubscriptionGroupConfig | None]:
    """Return a group's settings, of the first shard that has some (they are alike); None: none."""
    check_text("group", group)
    for address in (yield from masters(state)).values():
        if (found := (yield from _settings(state, address, group))) is not None:
            return found
    return None


def _settings(
    state: ClientState, address: str, group: str
) -> Operation[SubscriptionGroupConfig | None]:
    asked = GetSubscriptionGroupConfigRequestHeader(group=group)
    try:
        body = yield from body_of(state, address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, asked)
    except BrokerError as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        return None
    return decode(SubscriptionGroupConfig, address, body)


def has_group(state: ClientState, group: str) -> Operation[bool]:
    """Return whether any shard has a group of this name: settings, offsets or members."""
    check_text("group", group)
    for address in (yield from masters(state)).values():
        if (yield from _settings(state, address, group)) is not None:
            return True
        if (yield from _progress(state, address, group)):
            return True
        if (yield from _connections(state, address, group)).connection_set:
            return True
    return False


def create_group(state: ClientState, config: SubscriptionGroupConfig) -> Operation[None]:
    """Create or change a group on the master of every shard. HalfDoneError: not on all."""
    check_kind("config", config, SubscriptionGroupConfig)
    body = config.encode(standard=True)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    yield from _on_every_shard(state, config.group_name, code, None, body)


def delete_group(state: ClientState, group: str) -> Operation[None]:
    """Delete a group and its committed offsets. HalfDoneError: not on all shards."""
    check_text("group", group)
    deleted = DeleteSubscriptionGroupRequestHeader(
        group_name=group, clean_offset=True, remove_offset=True
    )
    yield from _on_every_shard(state, group, RequestCode.DELETE_SUBSCRIPTIONGROUP, deleted)


def _on_every_shard(
    state: ClientState, group: str, code: int, asked: Header | None, body: bytes = b""
) -> Operation[None]:
    """Have all masters change a group. HalfDoneError: one did not answer, or a shard has none."""
    found, done = (yield from reach(state)), list[str]()
    for shard, address in found.masters.items():
        with half_done(f"group {group}", done):
            yield from body_of(state, address, code, asked, body)
        done.append(shard)
    found.end(f"group {group}", done)


def describe_group(state: ClientState, group: str) -> Operation[GroupDescription]:
    """Return members, subscriptions and progress of a group, from every shard."""
    check_text("group", group)
    members: dict[str, Member] = {}
    subscriptions: dict[str, str] = {}
    progress: list[GroupProgress] = []
    for address in (yield from masters(state)).values():
        connection = yield from _connections(state, address, group)
        for one in connection.connection_set:
            members[one.client_id] = Member(
                one.client_id, one.client_addr, one.language.name, one.version
            )
        for topic, wanted in connection.subscription_table.items():
            subscriptions[topic] = wanted.sub_string
        progress += yield from _progress(state, address, group)
    return GroupDescription(
        group,
        tuple(members[name] for name in sorted(members)),
        dict(sorted(subscriptions.items())),
        tuple(sorted(progress, key=lambda one: one.queue)),
    )


def group_owners(
    state: ClientState, found: GroupDescription, seconds: float
) -> Operation[dict[MessageQueue, str] | None]:
    """Return which member reads each queue; None: a member does not tell.

    Consumers tell it of themselves, so `seconds` are the most that is waited for all of them. Those
    by POP and of MetaQ have no queues of their own, and blocking ones answer at their next poll.
    """
    owners: dict[MessageQueue, str] = {}
    shards = list((yield from masters(state)).values())
    ends = state.clock_s() + seconds
    for member in found.members:
        told = None
        for address in shards:
            left_s = ends - state.clock_s()
            if told is None and left_s > 0:
                told = yield from _queues_of(address, found.group, member, left_s)
        if told is None:
            return None
        owners |= dict.fromkeys(told, member.client_id)
    return owners


def _queues_of(
    address: str, group: str, member: Member, seconds: float
) -> Operation[list[MessageQueue] | None]:
    """Return what a member reads; None: it does not tell, or not this broker."""
    asked = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=member.client_id, jstack_enable=False
    )
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    try:
        answer = yield from ask_ok(Request(address, code, asked, timeout_s=seconds))
        told = ConsumerRunningInfo.decode(answer.body)
    except (ClientError, ProtocolError):
        return None
    if told.mq_pop_table or not (told.mq_table or told.subscription_set):
        return None
    return [from_wire(queue) for queue in told.mq_table]


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


def group_delays(state: ClientState, group: str, topic: str) -> Operation[dict[MessageQueue, int]]:
    """Return for how many ms the oldest message that a group has not read waits, queue by queue."""
    check_text("group", group)
    check_text("topic", topic)
    route = yield from find_route(state, topic)
    asked = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)
    found: dict[MessageQueue, int] = {}
    for address in route.masters():
        body = yield from body_of(state, address, RequestCode.QUERY_CONSUME_TIME_SPAN, asked)
        spans = decode(QueryConsumeTimeSpanBody, address, body).consume_time_span_set
        found |= {from_wire(span.message_queue): span.delay_time for span in spans}
    return found


def set_request_mode(
    state: ClientState, group: str, topic: str, mode: str, share_queues: int
) -> Operation[None]:
    """Say on every shard how a group reads a topic: "pull" or "pop"."""
    if mode not in ("pull", "pop"):
        raise UsageError(f"mode {mode!r}: must be pull or pop")
    check_text("group", group)
    check_text("topic", topic)
    check_whole("share_queues", share_queues, 0)
    body = SetMessageRequestModeRequestBody(
        consumer_group=group, topic=topic, mode=mode.upper(), pop_share_queue_num=share_queues
    ).encode(standard=True)
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    yield from _on_every_shard(state, group, code, None, body)


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


_NOBODY_TO_TELL = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)


def _connections(state: ClientState, address: str, group: str) -> Operation[ConsumerConnection]:
    asked = GetConsumerConnectionListRequestHeader(consumer_group=group)
    try:
        body = yield from body_of(state, address, RequestCode.GET_CONSUMER_CONNECTION_LIST, asked)
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return ConsumerConnection()
    return decode(ConsumerConnection, address, body)


def _progress(state: ClientState, address: str, group: str) -> Operation[list[GroupProgress]]:
    asked = GetConsumeStatsRequestHeader(consumer_group=group)
    body = yield from body_of(state, address, RequestCode.GET_CONSUME_STATS, asked)
    return [
        GroupProgress(
            from_wire(queue), offset.consumer_offset, offset.broker_offset, offset.last_timestamp
        )
        for queue, offset in decode(ConsumeStats, address, body).offset_table.items()
    ]
