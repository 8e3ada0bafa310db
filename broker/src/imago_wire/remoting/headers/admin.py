"""Headers of broker administration: topics, groups, statistics, settings."""

from __future__ import annotations

from imago_wire.remoting.fields import Header, Int, Long, RpcHeader, TopicHeader, header


@header
class CreateTopicRequestHeader(TopicHeader):
    """`attributes` holds changes: `+key=value,-key`."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


@header
class CreateTopicListRequestHeader(RpcHeader):
    """No fields of its own."""


@header
class DeleteTopicRequestHeader(TopicHeader):
    topic: str


@header
class GetAllTopicConfigRequestHeader(Header):
    """4.9 sends none of these; 5.x asks for slices."""

    topic_seq: Int
    data_version: str | None = None
    max_topic_num: Int | None = None


@header
class GetAllTopicConfigResponseHeader(Header):
    total_topic_num: Int


@header
class GetTopicConfigRequestHeader(TopicHeader):
    topic: str


@header
class GetTopicStatsInfoRequestHeader(TopicHeader):
    """`sizes` is ours: whether the answer is to say how many bytes each queue has."""

    sizes: bool | None = None
    topic: str


@header
class GetAllSubscriptionGroupRequestHeader(Header):
    """4.9 sends none of these; 5.x asks for slices."""

    group_seq: Int
    data_version: str | None = None
    max_group_num: Int | None = None


@header
class GetAllSubscriptionGroupResponseHeader(Header):
    total_group_num: Int


@header
class GetSubscriptionGroupConfigRequestHeader(RpcHeader):
    group: str


@header
class DeleteSubscriptionGroupRequestHeader(RpcHeader):
    """`clean_offset` comes from 5.x, `remove_offset` from 4.9; they mean the same."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool = False


@header
class UpdateGroupForbiddenRequestHeader(TopicHeader):
    group: str
    topic: str
    readable: bool | None = None


@header
class GetConsumeStatsRequestHeader(TopicHeader):
    """`topic_list` joins names with semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@header
class GetConsumeStatsInBrokerHeader(Header):
    is_order: bool


@header
class CloneGroupOffsetRequestHeader(RpcHeader):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


@header
class QueryCorrectionOffsetHeader(TopicHeader):
    filter_groups: str | None = None
    compare_group: str
    topic: str


@header
class QueryConsumeQueueRequestHeader(TopicHeader):
    topic: str | None = None
    queue_id: Int | None = None
    index: Long | None = None
    count: Int | None = None
    consumer_group: str | None = None


@header
class QueryConsumeTimeSpanRequestHeader(TopicHeader):
    topic: str
    group: str


@header
class QueryTopicConsumeByWhoRequestHeader(TopicHeader):
    topic: str


@header
class QueryTopicsByConsumerRequestHeader(RpcHeader):
    group: str


@header
class QuerySubscriptionByConsumerRequestHeader(TopicHeader):
    group: str
    topic: str | None = None


@header
class GetBrokerConfigResponseHeader(Header):
    version: str


@header
class ViewBrokerStatsDataRequestHeader(Header):
    stats_name: str
    stats_key: str


@header
class CheckRocksdbCqWriteProgressRequestHeader(Header):
    topic: str
    check_store_time: Long | None = None


@header
class ExportRocksDBConfigToJsonRequestHeader(Header):
    config_type: str


@header
class ExchangeHAInfoRequestHeader(Header):
    """Between brokers; both sides say the same."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@header
class ExchangeHAInfoResponseHeader(Header):
    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@header
class ResetMasterFlushOffsetHeader(Header):
    master_flush_offset: Long
