"""Headers of what producers send: messages, replies, recalls, transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.remoting.fields import Header, Int, Long, RpcHeader, TopicHeader, header, wire

if TYPE_CHECKING:
    from collections.abc import Mapping


@header
class SendMessageRequestHeader(TopicHeader):
    """One message, or a batch that shares all of this.

    `queue_id` below 0 leaves the choice to the broker; `born_timestamp` in ms;
    `max_reconsume_times` counts for retry topics only.
    """

    producer_group: str
    topic: str
    default_topic: str = "TBW102"
    default_topic_queue_nums: Int = 4
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int | None = None


@header
class SendMessageRequestHeaderV2(TopicHeader):
    """The same with one-letter names; `read_send_header` reads either."""

    producer_group: str = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c", default="TBW102")
    default_topic_queue_nums: Int = wire("d", default=4)
    queue_id: Int = wire("e")
    sys_flag: Int = wire("f")
    born_timestamp: Long = wire("g")
    flag: Int = wire("h")
    properties: str = wire("i", default="")
    reconsume_times: Int = wire("j", default=0)
    unit_mode: bool = wire("k", default=False)
    max_reconsume_times: Int | None = wire("l", default=None)
    batch: bool = wire("m", default=False)
    broker_name: str | None = wire("n", default=None)


def read_send_header(
    ext: Mapping[str, str],
) -> SendMessageRequestHeader | SendMessageRequestHeaderV2:
    """Read a send request by the names that are there: the code does not tell (Go mixes them)."""
    if "a" in ext or "b" in ext:
        return SendMessageRequestHeaderV2.from_ext(ext)
    return SendMessageRequestHeader.from_ext(ext)


@header
class SendMessageResponseHeader(Header):
    """Batches join their ids with commas; `queue_offset` is the first one.

    Java producers crash without `MSG_REGION` and `TRACE_ON`, so they are always written.
    """

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str = wire("MSG_REGION", default="DefaultRegion")
    trace_on: bool = wire("TRACE_ON", default=True)


@header
class ReplyMessageRequestHeader(TopicHeader):
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long


@header
class RecallMessageRequestHeader(TopicHeader):
    producer_group: str | None = None
    topic: str
    recall_handle: str


@header
class RecallMessageResponseHeader(Header):
    msg_id: str


@header
class EndTransactionRequestHeader(RpcHeader):
    """`commit_or_rollback`: 8 commits, 12 rolls back, 0 is unknown."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


@header
class EndTransactionResponseHeader(Header):
    """No fields of its own."""


@header
class CheckTransactionStateRequestHeader(RpcHeader):
    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@header
class ResumeCheckHalfMessageRequestHeader(Header):
    topic: str | None = None
    msg_id: str | None = None
