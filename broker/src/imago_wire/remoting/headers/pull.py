"""Headers of what consumers read: pulls, queries, offsets, messages sent back."""

from __future__ import annotations

from enum import IntFlag, StrEnum

from imago_wire.remoting.fields import Header, Int, Long, RpcHeader, TopicHeader, header, wire


class PullFlag(IntFlag):
    """Bits of `PullMessageRequestHeader.sys_flag`."""

    COMMIT_OFFSET = 0x1
    SUSPEND = 0x2
    SUBSCRIPTION = 0x4
    CLASS_FILTER = 0x8
    LITE_PULL = 0x10


class BoundaryType(StrEnum):
    """Which message of those around a moment: the first at or after it, or the last before it."""

    LOWER = "LOWER"
    UPPER = "UPPER"

    @classmethod
    def _missing_(cls, value: object) -> BoundaryType:
        """Read the word in any case, and any other as LOWER, as the original does."""
        return cls.UPPER if str(value).upper() == "UPPER" else cls.LOWER


@header
class PullMessageRequestHeader(TopicHeader):
    """`sys_flag` is a PullFlag; `proxy_froward_client_id` is spelt so on the wire."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None


@header
class PullMessageResponseHeader(Header):
    """Clients need the first four on codes 0, 19, 20 and 21."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


@header
class QueryMessageRequestHeader(TopicHeader):
    """`unique_key` tells that `key` is a unique id, not one of the KEYS."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key: bool = wire("_UNIQUE_KEY_QUERY", default=False)


@header
class QueryMessageResponseHeader(Header):
    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


@header
class ViewMessageRequestHeader(Header):
    """`offset` is the physical one."""

    topic: str | None = None
    offset: Long


@header
class ViewMessageResponseHeader(Header):
    """No fields of its own."""


@header
class ConsumerSendMsgBackRequestHeader(RpcHeader):
    """`offset` is the physical one; a delay level below 0 means dead letter."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


@header
class QueryConsumerOffsetRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


@header
class QueryConsumerOffsetResponseHeader(Header):
    offset: Long


@header
class UpdateConsumerOffsetRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


@header
class UpdateConsumerOffsetResponseHeader(Header):
    """No fields of its own."""


@header
class SearchOffsetRequestHeader(TopicHeader):
    """`boundary_type` comes from 5.x; absent means LOWER."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: BoundaryType | None = None


@header
class SearchOffsetResponseHeader(Header):
    offset: Long


@header
class GetMaxOffsetRequestHeader(TopicHeader):
    topic: str
    queue_id: Int
    committed: bool = True


@header
class GetMaxOffsetResponseHeader(Header):
    offset: Long


@header
class GetMinOffsetRequestHeader(TopicHeader):
    topic: str
    queue_id: Int


@header
class GetMinOffsetResponseHeader(Header):
    offset: Long


@header
class GetEarliestMsgStoretimeRequestHeader(TopicHeader):
    topic: str
    queue_id: Int


@header
class GetEarliestMsgStoretimeResponseHeader(Header):
    timestamp: Long
