"""Bodies of configuration: topics, subscription groups, their versions."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from imago_wire.remoting.bodies.fields import Body, body


@body
class DataVersion(Body):
    """Which state of a table this is. `state_version` comes from 5.x; `timestamp` in ms."""

    counter: int = 0
    state_version: int | None = None
    timestamp: int = 0


@body
class TopicConfig(Body):
    """A topic's settings on one broker. 4.9 has no `attributes`."""

    attributes: Mapping[str, str] | None = None
    order: bool = False
    perm: int = 6
    read_queue_nums: int = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str
    topic_sys_flag: int = 0
    write_queue_nums: int = 16


@body
class TopicConfigAndQueueMapping(TopicConfig):
    """A topic's settings with the mapping of a static topic, where it is one."""

    mapping_detail: Any = None


@body
class TopicConfigSerializeWrapper(Body):
    """All topics of a broker. The mappings come from 5.x."""

    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion | None = None
    topic_config_table: Mapping[str, TopicConfig] = field(default_factory=dict)
    topic_queue_mapping_detail_map: Mapping[str, Any] | None = None
    topic_queue_mapping_info_map: Mapping[str, Any] | None = None


@body
class CreateTopicListRequestBody(Body):
    topic_config_list: tuple[TopicConfig, ...]


@body
class SubscriptionGroupConfig(Body):
    """A consumer group's settings on one broker. The fields that may be None come from 5.x."""

    attributes: Mapping[str, str] | None = None
    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool | None = None
    consume_timeout_minute: int | None = None
    group_name: str
    group_retry_policy: Any = None
    group_sys_flag: int | None = None
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    subscription_data_set: Any = None
    which_broker_when_consume_slowly: int = 1


@body
class SubscriptionGroupWrapper(Body):
    """All subscription groups of a broker."""

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: Mapping[str, Mapping[str, int]] | None = None
    subscription_group_table: Mapping[str, SubscriptionGroupConfig] = field(default_factory=dict)


@body
class SubscriptionGroupList(Body):
    group_config_list: tuple[SubscriptionGroupConfig, ...]


@body
class GroupForbidden(Body):
    group: str
    readable: bool | None = None
    topic: str
