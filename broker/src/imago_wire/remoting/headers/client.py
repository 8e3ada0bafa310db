"""Headers of client management: heart beats, groups, locks, and what a broker asks of clients."""

from __future__ import annotations

from imago_wire.remoting.fields import Header, Int, Long, RpcHeader, TopicHeader, header, wire


@header
class HeartbeatRequestHeader(RpcHeader):
    """No fields of its own."""


@header
class HeartbeatResponseHeader(Header):
    """What a 5.x broker adds; 4.9 sends none of it."""

    support_heart_beat_v2: bool | None = wire("IS_SUPPORT_HEART_BEAT_V2", default=None)
    sub_change: bool | None = wire("IS_SUB_CHANGE", default=None)


@header
class UnregisterClientRequestHeader(RpcHeader):
    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@header
class UnregisterClientResponseHeader(Header):
    """No fields of its own."""


@header
class GetConsumerListByGroupRequestHeader(RpcHeader):
    consumer_group: str


@header
class GetConsumerListByGroupResponseHeader(Header):
    """No fields of its own."""


@header
class NotifyConsumerIdsChangedRequestHeader(RpcHeader):
    consumer_group: str


@header
class LockBatchMqRequestHeader(RpcHeader):
    """No fields of its own."""


@header
class UnlockBatchMqRequestHeader(RpcHeader):
    """No fields of its own."""


@header
class ResetOffsetRequestHeader(TopicHeader):
    """`is_force` means: also forward."""

    group: str
    topic: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp: Long
    is_force: bool


@header
class GetConsumerStatusRequestHeader(TopicHeader):
    topic: str
    group: str
    client_addr: str | None = None


@header
class GetConsumerRunningInfoRequestHeader(RpcHeader):
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@header
class ConsumeMessageDirectlyResultRequestHeader(TopicHeader):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


@header
class GetConsumerConnectionListRequestHeader(RpcHeader):
    consumer_group: str


@header
class GetProducerConnectionListRequestHeader(RpcHeader):
    producer_group: str


@header
class GetAllProducerInfoRequestHeader(Header):
    """No fields of its own."""
