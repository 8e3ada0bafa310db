"""Making topics and changing them. Brokers check what exists when they make the change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from imago_client.checks import check_texts, check_whole, refuse
from imago_client.core.administration.administration import (
    PERM_READ,
    PERM_READ_WRITE,
    PERM_WRITE,
    body_of,
    decode,
    half_done,
    topic_bounds,
)
from imago_client.core.administration.shards import masters, no_master, reach, reach_having
from imago_client.core.effects import Operation, Pause, Request, ask_ok
from imago_client.core.lookup import TEMPLATE_TOPIC, find_route
from imago_client.errors import (
    BrokerError,
    HidesMessagesError,
    NoRouteError,
    NoTopicError,
    TopicExistsError,
    TryAgainError,
)
from imago_client.naming import check_name
from imago_wire.remoting.bodies.config import TopicConfig, TopicConfigSerializeWrapper
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.admin import GetTopicConfigRequestHeader
from imago_wire.remoting.headers.imago import (
    PERM,
    QUEUES,
    ChangeTopicRequestHeader,
    ChangeTopicResponseHeader,
    TopicChange,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_client.core.state import ClientState

QUEUES_DEFAULT: Final = 4
QUEUES_MAX: Final = 65_536
"""Brokers give a topic no more."""
_ABSENT: Final = "No topic in this broker"
_ROUTED_S_MAX: Final = 10.0
_ROUTED_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What a caller names of a topic; None and what is not there is left as it is."""

    queues: int | None = None
    """On each shard, in both protocols."""
    perm: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.queues is not None:
            check_whole("queues", self.queues, 1, QUEUES_MAX)
        if self.perm not in (None, PERM_READ, PERM_WRITE, PERM_READ_WRITE):
            raise refuse("perm", self.perm, "4 (read), 2 (write) or 6 (both)")
        check_texts("attributes", self.attributes, 'a dict of texts: {"+retention.ms": "1000"}')

    @property
    def named(self) -> str:
        """The fields that count, as a broker reads them."""
        given = {QUEUES: self.queues, PERM: self.perm}
        return ",".join(name for name, value in given.items() if value is not None)


def create_topic(
    state: ClientState, topic: str, settings: TopicSettings, *, exist_ok: bool
) -> Operation[dict[str, str]]:
    """Make a topic on the master of every shard that is not cordoned; return those by shard.

    Done once the name service tells of it, so that the next send finds it. A topic that is there,
    on whatever shards, is left as it is: TopicExistsError unless it is as asked for and `exist_ok`.
    HalfDoneError: a master did not answer.
    """
    check_name("topic", topic)
    made: dict[str, str] = {}
    with half_done(f"topic {topic}", ()):
        found = yield from reach(state)
        living = found.masters
        there = yield from _configs(state, topic, living)
    if not there and found.away:
        raise TryAgainError(
            f"topic {topic}: not made, since {no_master(found.away)}. Repeat the call then"
        )
    change = TopicChange.ENSURE if exist_ok else TopicChange.CREATE
    having = {shard: living[shard] for shard in there} or living
    cordoned: BrokerError | None = None
    for shard, address in having.items():
        header = _header(topic, change, settings, TopicConfig(topic_name=topic))
        try:
            with half_done(f"topic {topic}", tuple(made)):
                yield from _ask(state, topic, address, header)
        except BrokerError as error:
            if error.code != ResponseCode.IMAGO_CORDONED:
                raise
            cordoned = error
        else:
            made[shard] = address
    if cordoned is not None and not made:
        raise cordoned
    if not there:
        queues = settings.queues or QUEUES_DEFAULT
        readable = bool((settings.perm or PERM_READ_WRITE) & PERM_READ)
        yield from _until_routed(state, topic, dict.fromkeys(made, queues), readable=readable)
    return made


def alter_topic(
    state: ClientState, topic: str, settings: TopicSettings, *, hide_messages: bool
) -> Operation[int]:
    """Change what is named of a topic, on every shard that has it; return how many messages
    readers no longer find.

    HidesMessagesError, and nothing is changed, where that would hide any and `hide_messages` does
    not let it. HalfDoneError: a shard that has it has no master, or its master did not answer.
    """
    check_name("topic", topic)
    with half_done(f"topic {topic}", ()):
        found = yield from reach_having(state, topic)
        living = found.masters
        there = yield from _configs(state, topic, living)
    if not there:
        found.end(f"topic {topic}", ())
        raise NoTopicError(topic)
    if settings.queues is not None and not hide_messages:
        if found.away:  # nobody can say what would be hidden there
            raise TryAgainError(
                f"topic {topic}: not changed, since {no_master(found.away)}. Repeat the call then"
            )
        yield from _refuse_hiding(state, topic, settings.queues, there)
    hidden, done = 0, list[str]()
    for shard, config in there.items():
        header = _header(topic, TopicChange.ALTER, settings, config, hide_messages=hide_messages)
        with half_done(f"topic {topic}", done):
            hidden += yield from _ask(state, topic, living[shard], header)
        done.append(shard)
    if settings.queues is not None:
        # One that takes no messages keeps the queues that it has, to be read out.
        open_ = [shard for shard, config in there.items() if config.perm & PERM_WRITE]
        readable = all(config.perm & PERM_READ for config in there.values())
        if settings.perm is None:
            wanted = dict.fromkeys(open_, settings.queues)
            yield from _until_routed(state, topic, wanted, readable=readable)
    state.drop_route(topic)
    found.end(f"topic {topic}", done)
    return hidden


def topic_settings(state: ClientState, topic: str) -> Operation[dict[str, TopicConfig]]:
    """Return a topic's settings on each shard that has it."""
    check_name("topic", topic)
    return (yield from _configs(state, topic, (yield from masters(state))))


def _configs(
    state: ClientState, topic: str, living: Mapping[str, str]
) -> Operation[dict[str, TopicConfig]]:
    """Return the topic's settings on the shards that have it."""
    found: dict[str, TopicConfig] = {}
    asked = GetTopicConfigRequestHeader(topic=topic)
    for shard, address in living.items():
        try:
            body = yield from body_of(state, address, RequestCode.GET_TOPIC_CONFIG, asked)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # RocketMQ before 5
                table = (yield from _all_configs(state, address)).topic_config_table
                found |= {shard: table[topic]} if topic in table else {}
                continue
            # RocketMQ's own brokers say it with one code or another, always in these words.
            if error.code != ResponseCode.TOPIC_NOT_EXIST and _ABSENT not in error.remark:
                raise
            continue
        found[shard] = decode(TopicConfig, address, body)
    return found


def _all_configs(state: ClientState, address: str) -> Operation[TopicConfigSerializeWrapper]:
    body = yield from body_of(state, address, RequestCode.GET_ALL_TOPIC_CONFIG, None)
    return decode(TopicConfigSerializeWrapper, address, body)


def _header(
    topic: str,
    change: TopicChange,
    settings: TopicSettings,
    base: TopicConfig,
    *,
    hide_messages: bool = False,
) -> ChangeTopicRequestHeader:
    """Return a request that says everything, as RocketMQ's own broker wants it, and what counts."""
    read, write = base.read_queue_nums, base.write_queue_nums
    if settings.queues is not None or change is not TopicChange.ALTER:
        read = write = settings.queues or QUEUES_DEFAULT
    perm = base.perm if settings.perm is None else settings.perm
    attributes = ",".join(f"+{name}={value}" for name, value in settings.attributes.items())
    return ChangeTopicRequestHeader(
        topic=topic,
        default_topic=TEMPLATE_TOPIC,
        read_queue_nums=read,
        write_queue_nums=write,
        perm=perm,
        topic_filter_type=base.topic_filter_type,
        topic_sys_flag=base.topic_sys_flag,
        order=base.order,
        attributes=attributes or None,
        imago_change=change,
        imago_named=settings.named,
        imago_hide_messages=hide_messages,
    )


def _ask(
    state: ClientState, topic: str, address: str, header: ChangeTopicRequestHeader
) -> Operation[int]:
    """Have one master do it; return how many messages that hides there."""
    timeout_s = state.config.request_timeout_s
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    try:
        answer = yield from ask_ok(Request(address, code, header, timeout_s=timeout_s))
    except BrokerError as error:
        if error.code == ResponseCode.IMAGO_TOPIC_EXISTS:
            raise TopicExistsError(address, error.code, error.remark) from None
        if error.code == ResponseCode.IMAGO_HIDES_MESSAGES:
            raise HidesMessagesError(error.remark) from None
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoTopicError(topic) from None
        raise
    return ChangeTopicResponseHeader.from_ext(answer.ext).imago_hidden or 0


def _refuse_hiding(
    state: ClientState, topic: str, queues: int, there: Iterable[str]
) -> Operation[None]:
    """Look before the first shard is changed; each broker looks again when it changes."""
    bounds = yield from topic_bounds(state, topic)
    hidden = [one for one in bounds if one.queue.queue_id >= queues and one.queue.shard in there]
    if messages := sum(one.max_offset - one.min_offset for one in hidden):
        most = max(one.queue.queue_id for one in hidden) + 1
        raise HidesMessagesError(
            f"topic {topic}: with {queues} of its {most} queues left to read, "
            f"{messages} {'message' if messages == 1 else 'messages'} would be hidden"
        )


def _until_routed(
    state: ClientState, topic: str, queues: Mapping[str, int], *, readable: bool
) -> Operation[None]:
    """Wait until the name service tells of so many queues on each shard. TryAgainError: it won't.

    Brokers register a topic after they have answered.
    """
    deadline = state.clock_s() + _ROUTED_S_MAX
    while True:
        state.drop_route(topic)
        try:
            found = (yield from find_route(state, topic)).queue_counts(readable=readable)
            if all(found.get(shard) == count for shard, count in queues.items()):
                return
        except NoRouteError:
            found = {}
        if state.clock_s() > deadline:
            raise TryAgainError(
                f"topic {topic!r}: done, but after {_ROUTED_S_MAX:g} s the name service still"
                f" tells of {found or 'nothing'}; do the brokers reach it?"
            )
        yield Pause(_ROUTED_PAUSE_S)
