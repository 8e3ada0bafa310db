"""Headers of the name service: routes, registrations, key-value configuration."""

from __future__ import annotations

from imago_wire.remoting.fields import Header, Int, Long, TopicHeader, header


@header
class GetRouteInfoRequestHeader(TopicHeader):
    """`accept_standard_json_only` is sent since 4.9.4."""

    topic: str
    accept_standard_json_only: bool | None = None


@header
class RegisterBrokerRequestHeader(Header):
    """`body_crc32` of 0 is not checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: Int = 0


@header
class RegisterBrokerResponseHeader(Header):
    ha_server_addr: str | None = None
    master_addr: str | None = None


@header
class UnRegisterBrokerRequestHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@header
class BrokerHeartbeatRequestHeader(Header):
    """Keeps a broker of 5.x alive between its registrations."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


@header
class QueryDataVersionRequestHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@header
class QueryDataVersionResponseHeader(Header):
    changed: bool


@header
class GetBrokerMemberGroupRequestHeader(Header):
    cluster_name: str
    broker_name: str


@header
class NotifyMinBrokerIdChangeRequestHeader(Header):
    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@header
class RegisterTopicRequestHeader(TopicHeader):
    topic: str


@header
class DeleteTopicFromNamesrvRequestHeader(TopicHeader):
    topic: str
    cluster_name: str | None = None


@header
class GetTopicsByClusterRequestHeader(Header):
    cluster: str


@header
class WipeWritePermOfBrokerRequestHeader(Header):
    broker_name: str


@header
class WipeWritePermOfBrokerResponseHeader(Header):
    wipe_topic_count: Int


@header
class AddWritePermOfBrokerRequestHeader(Header):
    broker_name: str


@header
class AddWritePermOfBrokerResponseHeader(Header):
    add_topic_count: Int


@header
class PutKVConfigRequestHeader(Header):
    namespace: str
    key: str
    value: str


@header
class GetKVConfigRequestHeader(Header):
    namespace: str
    key: str


@header
class GetKVConfigResponseHeader(Header):
    value: str | None = None


@header
class DeleteKVConfigRequestHeader(Header):
    namespace: str
    key: str


@header
class GetKVListByNamespaceRequestHeader(Header):
    namespace: str
