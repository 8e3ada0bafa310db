"""Bodies of figures and offsets: per topic, per group, per queue."""

from collections.abc import Mapping
from dataclasses import field

from imago_wire.remoting.bodies.client import MessageQueue
from imago_wire.remoting.bodies.config import DataVersion
from imago_wire.remoting.bodies.fields import Body, body


@body
class TopicOffset(Body):
    """A queue's bounds; `last_update_timestamp` in ms, 0 for an empty queue; `size` in bytes."""

    last_update_timestamp: int = 0
    max_offset: int = 0
    min_offset: int = 0
    size: int | None = None


@body
class TopicStatsTable(Body):
    offset_table: Mapping[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float | None = None


@body
class OffsetWrapper(Body):
    """A group's place in one queue; `last_timestamp`: when its last message was stored, in ms."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int | None = None


@body
class ConsumeStats(Body):
    consume_tps: float = 0.0
    offset_table: Mapping[MessageQueue, OffsetWrapper] = field(default_factory=dict)


@body
class ConsumeStatsList(Body):
    """All groups of a broker: a list of one-entry tables, group to its topics' figures."""

    broker_addr: str
    consume_stats_list: tuple[Mapping[str, tuple[ConsumeStats, ...]], ...] = ()
    total_diff: int = 0
    total_inflight_diff: int | None = None


@body
class QueueTimeSpan(Body):
    """A queue's oldest, newest and consumed message; times in ms and as text."""

    consume_time_stamp: int = 0
    consume_time_stamp_str: str | None = None
    delay_time: int = 0
    max_time_stamp: int = 0
    max_time_stamp_str: str | None = None
    message_queue: MessageQueue
    min_time_stamp: int = 0
    min_time_stamp_str: str | None = None


@body
class QueryConsumeTimeSpanBody(Body):
    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


@body
class BrokerStatsItem(Body):
    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


@body
class BrokerStatsData(Body):
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)


@body
class ConsumeQueueData(Body):
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0


@body
class QueryConsumeQueueResponseBody(Body):
    filter_data: str | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0
    queue_data: tuple[ConsumeQueueData, ...] = ()


@body
class ConsumerOffsetSerializeWrapper(Body):
    """All committed offsets of a broker: `topic@group` to queue id to offset."""

    data_version: DataVersion | None = None
    offset_table: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@body
class DelayOffsetSerializeWrapper(Body):
    """Progress of delayed delivery: delay level to queue offset."""

    data_version: DataVersion | None = None
    offset_table: Mapping[int, int] = field(default_factory=dict)


@body
class ResetOffsetBody(Body):
    """Offsets to start again from, as the Java and Go clients read them."""

    offset_table: Mapping[MessageQueue, int] = field(default_factory=dict)


@body
class MessageQueueForC(Body):
    broker_name: str
    offset: int
    queue_id: int
    topic: str


@body
class ResetOffsetBodyForC(Body):
    """The same as the C++ client reads them."""

    offset_table: tuple[MessageQueueForC, ...] = ()


@body
class GetConsumerStatusBody(Body):
    """Offsets by queue, from one client, or by client id and queue, from a broker."""

    consumer_table: Mapping[str, Mapping[MessageQueue, int]] | None = None
    message_queue_table: Mapping[MessageQueue, int] | None = None


@body
class QueryCorrectionOffsetBody(Body):
    correction_offsets: Mapping[int, int] = field(default_factory=dict)
