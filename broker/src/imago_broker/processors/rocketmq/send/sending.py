"""One send, whatever its form on the wire: checked, given its queue, its copies and its answer.

This is the slow path, for whatever the fast path of `send` does not serve: unknown topics,
retry topics, delays, transactions, compressed bodies, wrong numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.model.topics.sealing import seal_of
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.service.delays.levels.levels import asked_level
from imago_broker.service.puts.copies import joined
from imago_broker.service.transactions.half_messages import is_half
from imago_wire.record_format import properties as props
from imago_wire.record_format.layout import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    SYS_TRANSACTION_MASK,
)
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.send import read_send_header
from imago_wire.remoting.peer import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.core.puts.sequencing import Numbers
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.processors.rocketmq.exchange import Exchange
    from imago_broker.processors.rocketmq.rules import GroupRules
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.puts.sequencing import SequencedPuts
    from imago_broker.service.topics.topics import TopicService
    from imago_wire.remoting.texts.message_ids import UniqueKeys

    OnTopicMade = Sequence[Callable[[TopicConfig, str], None]]
    """Told each topic that a send has made, and its template; not groups' own."""

SYS_KEPT = SYS_COMPRESSED | SYS_COMPRESSION_MASK
"""What a client may say of its message; everything else the broker knows better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutParts:
    """How messages of sends get into the log, at once or later."""

    messages: MessageService
    topics: TopicService
    sequenced: SequencedPuts
    delay: DelayService
    unique_keys: UniqueKeys


@dataclass(slots=True)
class Sending:
    """What a send request says, in one form for both header classes."""

    producer_group: str
    topic: str
    default_topic: str
    default_queues: int
    queue_id: int
    sys_flag: int
    born_ms: int
    flag: int
    properties: bytes
    reconsume_times: int
    max_reconsume_times: int | None
    batch: bool
    body: bytes
    delay_level: int = 0
    """Of a message that has to wait; 0 for none."""
    due_ms: int = 0
    """Of a message that waits for a time of its own; 0 for none."""
    claimed: Numbers | None = None
    """Of an idempotent producer: which of its messages these are."""
    half: bool = False
    """It begins a transaction."""
    owner: str = ""
    """Of whose share that transaction is."""
    light: Sequence[str] = ()
    """What it names, of a message that light queues are to have, too."""

    @property
    def waits(self) -> bool:
        """Whether it does not go to its queue at once."""
        return self.half or bool(self.delay_level or self.due_ms)

    @classmethod
    def of(cls, exchange: Exchange) -> Sending:
        """Read the request, in either form of its header."""
        header = read_send_header(exchange.ext)
        tried = header.topic.startswith(names.RETRY_PREFIX)
        return cls(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_queues=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_ms=header.born_timestamp,
            flag=header.flag,
            properties=props.as_sent(header.properties.encode(), tried=tried),
            reconsume_times=header.reconsume_times,
            max_reconsume_times=header.max_reconsume_times,
            batch=header.batch or exchange.command.code == RequestCode.SEND_BATCH_MESSAGE,
            body=exchange.command.body,
        )


def checked_topic(
    topics: TopicService, on_made: OnTopicMade, sending: Sending, peer: str
) -> TopicConfig:
    """Return the topic of a send, made now where RocketMQ would; refuse what it refuses."""
    name = sending.topic
    config = topics.get(name)
    if config is None and (problem := rules.topic_problem(name)):
        raise rules.invalid(problem)
    if name in names.CLOSED_TO_SENDERS:
        raise rules.forbidden(f"Sending message to topic[{name}] is forbidden.")
    if config is None:
        config = _created(topics, on_made, sending)
    elif config == topics.light.config(name):
        _ensure_light(topics, name)
    if sending.queue_id >= config.queues:
        raise rules.invalid(
            f"request queueId[{sending.queue_id}] is illegal, {config.name} "
            f"readQueueNums={config.read_queues} writeQueueNums={config.write_queues} "
            f"Producer: {peer}"
        )
    if name in topics.light:
        return config
    handle = topics.handles.of(name)
    closed = handle is None or not handle.partitions
    if closed and (sending.queue_id < 0 or seal_of(config) is not None):
        # Original producers take this code for a reason to try another broker.
        raise rules.forbidden(f"the topic[{name}] sending message is forbidden")
    return config


def _ensure_light(topics: TopicService, name: str) -> None:
    if topics.intake.leaving or topics.intake.closed:
        raise rules.forbidden(f"the topic[{name}] sending message is forbidden")
    topics.light.ensure([name])


def _created(topics: TopicService, on_made: OnTopicMade, sending: Sending) -> TopicConfig:
    config = topics.auto_create(
        sending.topic,
        default_topic=sending.default_topic,
        default_queues=max(1, sending.default_queues),
        for_retry=sending.topic.startswith(names.RETRY_PREFIX),
    )
    if config is None:
        raise rules.unknown_topic(sending.topic)
    if not sending.topic.startswith(names.RETRY_PREFIX):
        for listener in on_made:
            listener(config, sending.default_topic)
    return config


def require_supported(host: str, sending: Sending) -> None:
    """Refuse what looks like the end of a transaction."""
    ended = sending.sys_flag & SYS_TRANSACTION_MASK
    if ended and not is_half(sending.sys_flag, sending.properties):
        raise rules.forbidden(f"the broker[{host}] sending transaction message is forbidden")


def delay_level(properties: bytes) -> int:
    """Return the delay level that a message asks for; 0 for none.

    RequestError: not a number as Java reads one.
    """
    text = props.find(properties, b"DELAY")
    if not text:
        return 0
    level = asked_level(text)
    if level is None:
        shown = text[:32].decode("ascii", "replace")
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"property DELAY is no number: {shown}")
    return level


def is_dead_letter(groups: GroupRules, sending: Sending, version: int) -> bool:
    """Whether a message that a consumer sends to its own retry topic was tried often enough.

    An orderly consumer before 5.0 sends the number of failed tries, one of 5.0 adds one for the
    try to come; each expects the comparison of its own broker.
    """
    group = sending.topic.removeprefix(names.RETRY_PREFIX)
    if group == sending.topic:
        return False
    settings = groups.require(group)
    tries_max = settings.retry_max_times
    if sending.max_reconsume_times is not None and version >= Version.V3_4_9:
        tries_max = sending.max_reconsume_times
    if version < Version.V5_0_0:
        return sending.reconsume_times >= tries_max
    return sending.reconsume_times > tries_max


def broker_properties(cluster: str, settings: RocketmqSection) -> bytes:
    """Return what a broker adds to each single message.

    Request and reply go by the cluster's name. Consumers of 5.x tell nothing of a message without a
    region where they trace, and those of 4.9 only where it says so.
    """
    trace = f"MSG_REGION\x01{settings.region}" if settings.trace_on else "TRACE_ON\x01false"
    return f"CLUSTER\x01{cluster}\x02{trace}\x02".encode()


def with_broker_properties(properties: bytes, added: bytes) -> bytes:
    """Return the properties with what the broker adds, in place of what another one has added."""
    if properties.find(b"CLUSTER\x01") >= 0 or properties.find(b"MSG_REGION\x01") >= 0:
        properties = props.without(properties, (b"CLUSTER", b"MSG_REGION", b"TRACE_ON"))
    return joined(properties, added)
