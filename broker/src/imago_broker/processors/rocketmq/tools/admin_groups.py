"""Administration of consumer groups: settings, connections, progress."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.tools.wire_forms import (
    altered_attributes,
    group_body,
    group_config,
)
from imago_wire.remoting.bodies.client import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from imago_wire.remoting.bodies.config import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from imago_wire.remoting.bodies.route import TopicList
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.fields import int_field
from imago_wire.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from imago_wire.remoting.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from imago_wire.remoting.peer import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.model.groups import GroupConfig
    from imago_broker.ports import Clock
    from imago_broker.processors.rocketmq.rules import GroupRules
    from imago_broker.service.groups.clients import ClientRegistry, ConnectedClient, ConsumerGroup
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.groups.resets import PendingResets
    from imago_broker.service.topics.versions import TableVersion

FORBIDDEN_TOPICS_MAX = 1000
READING_FORBIDDEN = 1 << 2
"""The bit of reading among what the table of 5.x forbids."""


@dataclass(slots=True, eq=False, kw_only=True)
class GroupAdmin:
    """The request codes about groups and their members."""

    offsets: ConsumerOffsets
    groups: GroupService
    clock: Clock
    clients: ClientRegistry
    resets: PendingResets
    group_version: TableVersion
    group_rules: GroupRules

    def update(self, exchange: Exchange) -> Reply:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        self._put([SubscriptionGroupConfig.decode(exchange.command.body)])
        return OK

    def update_list(self, exchange: Exchange) -> Reply:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all, or none when one of them cannot be."""
        self._put(SubscriptionGroupList.decode(exchange.command.body).group_config_list)
        return OK

    def _put(self, wanted: Iterable[SubscriptionGroupConfig]) -> None:
        configs = []
        for config in map(group_config, wanted):
            known = self.groups.get(config.name)
            forbidden = known.forbidden_topics if known is not None else ()
            had = known.attributes if known is not None else {}
            attributes = altered_attributes(had, config.attributes)
            configs.append(replace(config, forbidden_topics=forbidden, attributes=attributes))
            self.groups.check(configs[-1])
        for config in configs:
            self.groups.update(config)
        self.group_version.bump(self.clock.epoch_ms())

    def forbid(self, exchange: Exchange) -> Reply:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: say, or ask, whether a group may read a topic."""
        header = UpdateGroupForbiddenRequestHeader.from_ext(exchange.ext)
        config = self.groups.get(header.group)
        if header.readable is not None:
            config = self.group_rules.require(header.group)
            others = {*config.forbidden_topics} - {header.topic}
            forbidden = others if header.readable else others | {header.topic}
            if len(forbidden) > FORBIDDEN_TOPICS_MAX:
                raise rules.invalid(
                    f"group {header.group} has {FORBIDDEN_TOPICS_MAX} forbidden topics already"
                )
            config = replace(config, forbidden_topics=tuple(sorted(forbidden)))
            self.groups.update(config)
            self.group_version.bump(self.clock.epoch_ms())
        readable = config is None or header.topic not in config.forbidden_topics
        body = GroupForbidden(group=header.group, topic=header.topic, readable=readable)
        return Reply(remark="", body=body.encode())

    def delete(self, exchange: Exchange) -> Reply:
        """DELETE_SUBSCRIPTIONGROUP: the settings, and the offsets where asked."""
        header = DeleteSubscriptionGroupRequestHeader.from_ext(exchange.ext)
        self.groups.delete(header.group_name)
        self.group_version.bump(self.clock.epoch_ms())
        if header.clean_offset or header.remove_offset:
            self.offsets.forget_group(header.group_name)
        self.resets.forget_group(header.group_name)
        return OK

    def all_configs(self, exchange: Exchange) -> Reply:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: the whole table, or the slice that 5.x asks for."""
        configs = self.groups.all()
        start = max(0, int_field(exchange.ext, "groupSeq", 0))
        count = max(0, int_field(exchange.ext, "maxGroupNum", len(configs)))
        version = exchange.command.version
        wrapper = SubscriptionGroupWrapper(
            data_version=self.group_version.body(version),
            forbidden_table=_forbidden(configs) if version >= Version.V5_0_0 else None,
            subscription_group_table={
                config.name: group_body(config, version)
                for config in configs[start : start + count]
            },
        )
        return Reply(ext={"totalGroupNum": str(len(configs))}, body=wrapper.encode())

    def config(self, exchange: Exchange) -> Reply:
        """GET_SUBSCRIPTIONGROUP_CONFIG."""
        header = GetSubscriptionGroupConfigRequestHeader.from_ext(exchange.ext)
        config = self.groups.get(header.group)
        if config is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return Reply(body=group_body(config, exchange.command.version).encode())

    def consumers(self, exchange: Exchange) -> Reply:
        """GET_CONSUMER_CONNECTION_LIST."""
        header = GetConsumerConnectionListRequestHeader.from_ext(exchange.ext)
        group = self._online(header.consumer_group)
        body = ConsumerConnection(
            connection_set=tuple(map(_connection, group.members.values())),
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=dict(group.subscriptions),
        )
        return Reply(body=body.encode())

    def producers(self, exchange: Exchange) -> Reply:
        """GET_PRODUCER_CONNECTION_LIST."""
        header = GetProducerConnectionListRequestHeader.from_ext(exchange.ext)
        members = self.clients.producers(header.producer_group)
        if not members:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the producer group[{header.producer_group}] not exist",
            )
        body = ProducerConnection(connection_set=tuple(map(_connection, members.values())))
        return Reply(body=body.encode())

    def all_producers(self, _: Exchange) -> Reply:
        """GET_ALL_PRODUCER_INFO."""
        data = {
            group: tuple(
                ProducerInfo(
                    client_id=client.client_id,
                    language=client.language,
                    last_update_timestamp=client.seen_ms,
                    remote_ip=client.channel.peer,
                    version=client.version,
                )
                for client in members.values()
            )
            for group, members in self.clients.producer_groups().items()
        }
        return Reply(body=ProducerTableInfo(data=data).encode())

    def topics(self, exchange: Exchange) -> Reply:
        """QUERY_TOPICS_BY_CONSUMER: where the group has been, and what it subscribes to."""
        header = QueryTopicsByConsumerRequestHeader.from_ext(exchange.ext)
        group = self.clients.consumers(header.group)
        found = {
            *self.offsets.of_group(header.group),
            *(group.subscriptions if group else ()),
        }
        return Reply(body=TopicList(topic_list=tuple(sorted(found))).encode())

    def subscription(self, exchange: Exchange) -> Reply:
        """QUERY_SUBSCRIPTION_BY_CONSUMER."""
        header = QuerySubscriptionByConsumerRequestHeader.from_ext(exchange.ext)
        topic = header.topic or ""
        group = self._online(header.group)
        body = QuerySubscriptionResponseBody(
            group=header.group, topic=topic, subscription_data=group.subscriptions.get(topic)
        )
        return Reply(body=body.encode())

    def _online(self, name: str) -> ConsumerGroup:
        group = self.clients.consumers(name)
        if group is None:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        return group


def _forbidden(configs: Iterable[GroupConfig]) -> dict[str, dict[str, int]]:
    """Return the table of who may not read what, as RocketMQ 5 writes it."""
    return {
        config.name: dict.fromkeys(config.forbidden_topics, READING_FORBIDDEN)
        for config in configs
        if config.forbidden_topics
    }


def _connection(client: ConnectedClient) -> Connection:
    return Connection(
        client_addr=client.channel.peer,
        client_id=client.client_id,
        language=client.language,
        version=client.version,
    )
