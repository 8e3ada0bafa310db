"""Headers of POP consumption (5.x)."""

from __future__ import annotations

from imago_wire.remoting.fields import Header, Int, Long, TopicHeader, header


@header
class PopMessageRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    init_mode: Int
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


@header
class PopMessageResponseHeader(Header):
    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@header
class AckMessageRequestHeader(TopicHeader):
    """`extra_info` is the receipt that the message came with."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long


@header
class ChangeInvisibleTimeRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long
    suspend: bool = False
    """Whether the delivery is not to count as a try."""


@header
class PopLiteMessageRequestHeader(TopicHeader):
    """Asks for messages of all lite topics that a client wants."""

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    attempt_id: str | None = None


@header
class ChangeInvisibleTimeResponseHeader(Header):
    pop_time: Long
    invisible_time: Long
    revive_qid: Int


@header
class NotificationRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: Int
    poll_time: Long
    born_time: Long
    order: bool = False
    attempt_id: str | None = None


@header
class NotificationResponseHeader(Header):
    has_msg: bool = False
    polling_full: bool = False


@header
class PeekMessageRequestHeader(TopicHeader):
    topic: str
    queue_id: Int
    max_msg_nums: Int
    consumer_group: str


@header
class PollingInfoRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: Int


@header
class PollingInfoResponseHeader(Header):
    polling_num: Int
