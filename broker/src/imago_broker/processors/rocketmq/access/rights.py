"""What each request code needs a right to: one row a code, of brokers and of the name service.

Those of features are in their folders; `features.catalogue` has them all.

A need is one resource and the operations of which one is enough. A code without a row is denied.
Retry topics belong to their groups: who may consume in a group may use its retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.model.access.access import (
    CLUSTER_NAME,
    READ,
    RULE,
    RUN,
    SHOW,
    AccessKind,
    Need,
    Operation,
)
from imago_broker.model.pipelines import NAMESPACE as PIPELINES
from imago_broker.processors.rocketmq.needs import (
    ALTER,
    PUBLISH,
    SUBSCRIBE,
    needs_to_consume,
    needs_to_read,
    needs_to_reset,
    needs_to_send,
    of_group,
    of_topic,
    to_set,
)
from imago_wire.errors import ProtocolError
from imago_wire.record_format.references import is_light, named_queues
from imago_wire.remoting.bodies.client import (
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
)
from imago_wire.remoting.bodies.config import (
    CreateTopicListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.headers.send import read_send_header
from imago_wire.remoting.texts.message_ids import parse_offset_message_id

if TYPE_CHECKING:
    from imago_wire.remoting.command import RemotingCommand

REGISTER: Final = (*RUN, Operation.CREATE)
"""Foreign brokers sign nothing: `anonymous` may have `create` from their addresses, and no more."""
DELETE: Final = (Operation.DELETE,)
TELL: Final = (Operation.PUBLISH, Operation.ALTER)
PROGRESS: Final = (Operation.SUBSCRIBE, Operation.ALTER)


class MessageTopics(NamedTuple):
    """Which topics a stored message belongs to."""

    stored: str
    """That of its record: whoever may read that may read it."""
    meant: str
    """The same, or of one that waits the topic that it is for: its producer's."""


TopicsAt = Callable[[int], MessageTopics | None]
"""Those of the message that is seen at a log offset; None: there is none."""


Known = Callable[[AccessKind, str], bool]


def known_to_nobody(_kind: AccessKind, _name: str) -> bool:
    """Say of each name that there is nothing of it, where nobody asks."""
    return False


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and what tells which messages it means."""

    command: RemotingCommand
    topics_at: TopicsAt
    light_queues: bool = False
    """Whether a message goes to the light queues that it names."""
    known: Known = known_to_nobody
    """Whether there is a topic or group of that name."""

    def field(self, name: str) -> str:
        """Return a field of the header; "" where it is not there."""
        return self.command.ext.get(name, "")

    def number(self, name: str) -> int:
        """Return a field as a number; -1 where nobody would take it for one."""
        try:
            return int(self.field(name)[:24])
        except ValueError:
            return -1


Right = Callable[[Asked], Iterable[Need]]


def open_to_all(_: Asked) -> Iterable[Need]:
    """Need nothing: not even a user, as at RocketMQ's own name service."""
    return ()


def cluster(operations: tuple[Operation, ...]) -> Right:
    """About the broker or the cluster as a whole."""
    need = Need(operations, AccessKind.CLUSTER, CLUSTER_NAME)
    return lambda _: (need,)


def topic(operations: tuple[Operation, ...], *fields: str) -> Right:
    """About the topic that these fields name; those that are not there name none."""
    return lambda asked: [of_topic(asked.field(name), operations) for name in fields or ("topic",)]


def group(operations: tuple[Operation, ...], *fields: str) -> Right:
    """About the group that these fields name."""
    return lambda asked: [
        of_group(asked.field(name), operations) for name in fields or ("consumerGroup",)
    ]


def given(right: Right, field: str) -> Right:
    """Need it where the field is there."""
    return lambda asked: right(asked) if asked.field(field) else ()


def both(*rights: Right) -> Right:
    """Need all of them."""
    return lambda asked: [need for right in rights for need in right(asked)]


def _reset(asked: Asked) -> Iterable[Need]:
    return needs_to_reset(asked.field("topic"), asked.field("group"))


def send(asked: Asked) -> Iterable[Need]:
    """Send to a topic, and to the light queues that the message names."""
    header = read_send_header(asked.command.ext)
    needs = needs_to_send(header.topic)
    if not asked.light_queues or header.batch:
        return needs
    named = dict.fromkeys(named_queues(header.properties.encode()))
    return [*needs, *(of_topic(name, PUBLISH) for name in named if is_light(name))]


def consume(asked: Asked) -> Iterable[Need]:
    """Read a topic in a group."""
    return needs_to_consume((asked.field("topic"), asked.field("consumerGroup")))


def stored(place: Callable[[Asked], int]) -> Right:
    """Read the message at a place; one that is not there needs nothing."""

    def needs(asked: Asked) -> Iterable[Need]:
        found = asked.topics_at(place(asked))
        return needs_to_read(found.stored) if found is not None else ()

    return needs


def meant(operations: tuple[Operation, ...], place: Callable[[Asked], int]) -> Right:
    """About the topic that the message at a place is for.

    One that is not seen needs nothing here: who finds it later on asks then (`Exchange.require`).
    """

    def needs(asked: Asked) -> Iterable[Need]:
        found = asked.topics_at(place(asked))
        return (of_topic(found.meant, operations),) if found is not None else ()

    return needs


def at_field(field: str) -> Callable[[Asked], int]:
    """Return what reads a place in the log from a field."""
    return lambda asked: asked.number(field)


def by_id(asked: Asked) -> int:
    """Return the place that the message's id names; -1: none."""
    try:
        return parse_offset_message_id(asked.field("msgId"))[1]
    except ProtocolError:
        return -1


def _heartbeat(asked: Asked) -> Iterable[Need]:
    for consumer in HeartbeatData.decode(asked.command.body).consumer_data_set:
        yield of_group(consumer.group_name, SUBSCRIBE)
        for subscription in consumer.subscription_data_set:
            yield of_topic(subscription.topic, SUBSCRIBE)


def _stats_topics(asked: Asked) -> Iterable[Need]:
    named = [asked.field("topic"), *asked.field("topicList").split(";")]
    return [of_topic(name, READ) for name in named if name]


def _check(asked: Asked) -> Iterable[Need]:
    body = CheckClientRequestBody.decode(asked.command.body)
    yield of_group(body.group, SUBSCRIBE)
    yield of_topic(body.subscription_data.topic, SUBSCRIBE)


def _lock(asked: Asked) -> Iterable[Need]:
    body = LockBatchRequestBody.decode(asked.command.body)
    yield of_group(body.consumer_group, SUBSCRIBE)
    for queue in body.mq_set:
        yield of_topic(queue.topic, SUBSCRIBE)


def _set_topic(asked: Asked, name: str) -> Need:
    return of_topic(name, to_set(known=asked.known(AccessKind.TOPIC, name)))


def _set_group(asked: Asked, name: str) -> Need:
    return of_group(name, to_set(known=asked.known(AccessKind.GROUP, name)))


def _topic_set(asked: Asked) -> Iterable[Need]:
    return (_set_topic(asked, asked.field("topic")),)


def _topics_set(asked: Asked) -> Iterable[Need]:
    wanted = CreateTopicListRequestBody.decode(asked.command.body).topic_config_list
    return [_set_topic(asked, config.topic_name) for config in wanted]


def _group_set(asked: Asked) -> Iterable[Need]:
    wanted = SubscriptionGroupConfig.decode(asked.command.body)
    return (_set_group(asked, wanted.group_name),)


def _groups_set(asked: Asked) -> Iterable[Need]:
    wanted = SubscriptionGroupList.decode(asked.command.body).group_config_list
    return [_set_group(asked, config.group_name) for config in wanted]


def _put_kv(asked: Asked) -> Iterable[Need]:
    """A run that tells how far it is needs a right to its pipeline, not to the cluster."""
    if asked.field("namespace") == PIPELINES:
        return (Need(TELL, AccessKind.PIPELINE, asked.field("key")),)
    return (Need(RUN, AccessKind.CLUSTER, CLUSTER_NAME),)


COMMON_RIGHTS: Mapping[int, Right] = MappingProxyType(
    {
        Code.SEND_MESSAGE: send,
        Code.SEND_MESSAGE_V2: send,
        Code.SEND_BATCH_MESSAGE: send,
        Code.CONSUMER_SEND_MSG_BACK: both(group(SUBSCRIBE, "group"), stored(at_field("offset"))),
        Code.PULL_MESSAGE: consume,
        Code.LITE_PULL_MESSAGE: consume,
        Code.QUERY_CONSUMER_OFFSET: both(topic(READ), group(READ)),
        Code.UPDATE_CONSUMER_OFFSET: both(topic(PROGRESS), group(PROGRESS)),
        Code.SEARCH_OFFSET_BY_TIMESTAMP: topic(READ),
        Code.GET_MAX_OFFSET: topic(READ),
        Code.GET_MIN_OFFSET: topic(READ),
        Code.GET_EARLIEST_MSG_STORETIME: topic(READ),
        Code.HEART_BEAT: _heartbeat,
        Code.UNREGISTER_CLIENT: given(group(SUBSCRIBE), "consumerGroup"),
        Code.GET_CONSUMER_LIST_BY_GROUP: group(READ),
        Code.CHECK_CLIENT_CONFIG: _check,
        Code.LOCK_BATCH_MQ: _lock,
        Code.UNLOCK_BATCH_MQ: _lock,
        Code.VIEW_MESSAGE_BY_ID: stored(at_field("offset")),
        Code.QUERY_MESSAGE: lambda asked: needs_to_read(asked.field("topic")),
        # Administration
        Code.UPDATE_AND_CREATE_TOPIC: _topic_set,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC: _topic_set,
        Code.UPDATE_AND_CREATE_TOPIC_LIST: _topics_set,
        Code.DELETE_TOPIC_IN_BROKER: topic(DELETE),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group_set,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _groups_set,
        Code.DELETE_SUBSCRIPTIONGROUP: group(DELETE, "groupName"),
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN: both(topic(READ), group(ALTER, "group")),
        Code.CLONE_GROUP_OFFSET: both(group(READ, "srcGroup"), group(ALTER, "destGroup")),
        Code.INVOKE_BROKER_TO_RESET_OFFSET: _reset,
        Code.GET_ALL_TOPIC_CONFIG: cluster(SHOW),
        Code.GET_TOPIC_CONFIG: topic(READ),
        Code.GET_TOPIC_STATS_INFO: topic(READ),
        Code.QUERY_TOPIC_CONSUME_BY_WHO: topic(READ),
        Code.QUERY_CONSUME_TIME_SPAN: both(topic(READ), group(READ, "group")),
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: cluster(SHOW),
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: cluster(SHOW),
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: group(READ, "group"),
        Code.GET_CONSUMER_CONNECTION_LIST: group(READ),
        Code.GET_PRODUCER_CONNECTION_LIST: group(READ, "producerGroup"),
        Code.GET_ALL_PRODUCER_INFO: cluster(SHOW),
        Code.QUERY_TOPICS_BY_CONSUMER: group(READ, "group"),
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER: group(READ, "group"),
        Code.GET_CONSUME_STATS: both(group(READ), _stats_topics),
        Code.GET_BROKER_CONSUME_STATS: cluster(SHOW),
        Code.GET_ALL_CONSUMER_OFFSET: cluster(SHOW),
        Code.GET_ALL_DELAY_OFFSET: cluster(SHOW),
        # The answer is made of the offsets of all groups.
        Code.QUERY_CORRECTION_OFFSET: both(topic(READ), group(READ, "compareGroup"), cluster(SHOW)),
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: both(topic(READ), group(READ, "group")),
        Code.GET_CONSUMER_RUNNING_INFO: group(READ),
        Code.CONSUME_MESSAGE_DIRECTLY: both(group(ALTER), stored(by_id)),
        Code.GET_BROKER_CONFIG: cluster(SHOW),
        Code.UPDATE_BROKER_CONFIG: cluster(RUN),
        Code.GET_BROKER_RUNTIME_INFO: cluster(SHOW),
        Code.VIEW_BROKER_STATS_DATA: cluster(SHOW),
        Code.QUERY_CONSUME_QUEUE: both(topic(READ), given(group(READ), "consumerGroup")),
        Code.CLEAN_EXPIRED_CONSUMEQUEUE: cluster(RUN),
        Code.CLEAN_UNUSED_TOPIC: cluster(RUN),
        Code.DELETE_EXPIRED_COMMITLOG: cluster(RUN),
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: cluster(RUN),
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: cluster(RUN),
        Code.GET_COLD_DATA_FLOW_CTR_INFO: cluster(SHOW),
        Code.SET_COMMITLOG_READ_MODE: cluster(RUN),
        Code.GET_BROKER_HA_STATUS: cluster(SHOW),
        Code.EXCHANGE_BROKER_HA_INFO: cluster(RUN),
        Code.RESET_MASTER_FLUSH_OFFSET: cluster(RUN),
        Code.NOTIFY_MIN_BROKER_ID_CHANGE: cluster(RUN),
        Code.GET_TIMER_CHECK_POINT: cluster(SHOW),
        Code.GET_TIMER_METRICS: cluster(SHOW),
        # Users and rights
        Code.UPDATE_AND_CREATE_ACL_CONFIG: cluster(RULE),
        Code.DELETE_ACL_CONFIG: cluster(RULE),
        Code.GET_BROKER_CLUSTER_ACL_INFO: cluster(SHOW),
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: cluster(RULE),
        Code.AUTH_CREATE_USER: cluster(RULE),
        Code.AUTH_UPDATE_USER: cluster(RULE),
        Code.AUTH_DELETE_USER: cluster(RULE),
        Code.AUTH_GET_USER: cluster(RULE),
        Code.AUTH_LIST_USER: cluster(RULE),
        Code.AUTH_CREATE_ACL: cluster(RULE),
        Code.AUTH_UPDATE_ACL: cluster(RULE),
        Code.AUTH_DELETE_ACL: cluster(RULE),
        Code.AUTH_GET_ACL: cluster(RULE),
        Code.AUTH_LIST_ACL: cluster(RULE),
    }
)

NAME_RIGHTS: Mapping[int, Right] = MappingProxyType(
    {
        Code.GET_ROUTEINFO_BY_TOPIC: open_to_all,
        Code.GET_BROKER_CLUSTER_INFO: open_to_all,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: open_to_all,
        Code.GET_TOPICS_BY_CLUSTER: open_to_all,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: open_to_all,
        Code.GET_UNIT_TOPIC_LIST: open_to_all,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST: open_to_all,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: open_to_all,
        Code.GET_KV_CONFIG: open_to_all,
        Code.GET_KVLIST_BY_NAMESPACE: open_to_all,
        Code.GET_BROKER_MEMBER_GROUP: open_to_all,
        Code.REGISTER_TOPIC_IN_NAMESRV: cluster(RUN),
        Code.DELETE_TOPIC_IN_NAMESRV: topic(DELETE),
        Code.WIPE_WRITE_PERM_OF_BROKER: cluster(RUN),
        Code.ADD_WRITE_PERM_OF_BROKER: cluster(RUN),
        Code.PUT_KV_CONFIG: _put_kv,
        Code.DELETE_KV_CONFIG: cluster(RUN),
        Code.GET_NAMESRV_CONFIG: cluster(SHOW),
        Code.UPDATE_NAMESRV_CONFIG: cluster(RUN),
        # Other brokers that say of themselves that they belong to the cluster.
        Code.REGISTER_BROKER: cluster(REGISTER),
        Code.UNREGISTER_BROKER: cluster(REGISTER),
        Code.QUERY_DATA_VERSION: cluster(REGISTER),
        Code.BROKER_HEARTBEAT: cluster(REGISTER),
    }
)
