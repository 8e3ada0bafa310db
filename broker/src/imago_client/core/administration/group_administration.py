"""Operations of administration on consumer groups and their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_client.checks import check_kind, check_text, check_whole
from imago_client.core.administration.administration import (
    body_of,
    decode,
    from_wire,
    half_done,
)
from imago_client.core.administration.shards import masters, reach
from imago_client.core.effects import Request, ask_ok
from imago_client.core.lookup import find_route
from imago_client.errors import BrokerError, ClientError, UsageError
from imago_client.message_queue import MessageQueue
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.client import ConsumerConnection, ConsumerRunningInfo
from imago_wire.remoting.bodies.config import SubscriptionGroupConfig, SubscriptionGroupWrapper
from imago_wire.remoting.bodies.pop import SetMessageRequestModeRequestBody
from imago_wire.remoting.bodies.stats import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    QueryConsumeTimeSpanBody,
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
