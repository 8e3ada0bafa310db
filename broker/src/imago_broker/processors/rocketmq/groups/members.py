"""Clients: heartbeats, groups and their members, queue locks, checks of filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.core.sql92.errors import FilterError
from imago_broker.model import names
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.rows import REMARK_SIZE_MAX
from imago_broker.service.groups.locks import KIND as LOCK_KIND
from imago_broker.service.groups.member_notices import MemberNotices
from imago_wire.remoting.bodies.client import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
)
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)

if TYPE_CHECKING:
    from imago_broker.ports import Clock
    from imago_broker.processors.rocketmq.groups.resetting import OffsetResetter
    from imago_broker.processors.rocketmq.pull.subscriptions import MessageSelector
    from imago_broker.processors.rocketmq.rules import GroupRules
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.groups.locks import QueueKey, QueueLocks
    from imago_broker.service.groups.resets import PendingResets
    from imago_broker.service.groups.sweeping import Sweeper
    from imago_broker.service.role import ShardRole
    from imago_log.store import MessageStore
    from imago_wire.remoting.bodies.client import SubscriptionData


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientParts:
    """Who is connected, and what it has been told or holds."""

    registry: ClientRegistry
    locks: QueueLocks
    resets: PendingResets
    resetter: OffsetResetter
    sweeper: Sweeper


class MemberProcessor:
    """The request codes by which clients come, go and divide queues."""

    def __init__(
        self,
        *,
        store: MessageStore,
        clock: Clock,
        broker_name: str,
        clients: ClientParts,
        group_rules: GroupRules,
        selector: MessageSelector,
    ) -> None:
        self._store, self._clock, self._broker_name = store, clock, broker_name
        self._clients, self._locks = clients.registry, clients.locks
        self._group_rules, self._groups = group_rules, group_rules.groups
        self._topics, self._serving_rules = group_rules.topics, group_rules.serving_rules
        self._selector = selector
        notices = MemberNotices(self._tell_members)
        self._clients.on_group_change.append(lambda group: notices.changed(group.name))
        role = self._serving_rules.role
        role.on_change.append(self._role_changed)
        self._role_changed(role.current)

    def heartbeat(self, exchange: Exchange) -> Reply:
        """HEART_BEAT: the client lives; its groups, topics for their retries and subscriptions.

        Every member of the shard keeps its clients, as each may be the next master.
        """
        data = HeartbeatData.decode(exchange.command.body)
        if problem := _problem(data):
            raise rules.invalid(problem)
        for consumer in data.consumer_data_set:
            group = self._group_rules.require(consumer.group_name)
            if group.retry_queues > 0 and self._serving_rules.leads:
                self._group_rules.own_topic(names.retry_topic(group.name))
        self._clients.heartbeat(
            exchange.channel,
            data,
            exchange.command.language,
            exchange.command.version,
            self._clock.epoch_ms(),
            exchange.user,
        )
        return OK

    def unregister(self, exchange: Exchange) -> Reply:
        """UNREGISTER_CLIENT: the client leaves a group."""
        header = UnregisterClientRequestHeader.from_ext(exchange.ext)
        self._clients.unregister(
            exchange.channel,
            producer_group=header.producer_group,
            consumer_group=header.consumer_group,
        )
        return OK

    def consumer_list(self, exchange: Exchange) -> Reply:
        """GET_CONSUMER_LIST_BY_GROUP: the ids by which clients divide the queues."""
        header = GetConsumerListByGroupRequestHeader.from_ext(exchange.ext)
        group = self._clients.consumers(header.consumer_group)
        if group is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}"
            )
        body = GetConsumerListByGroupResponseBody(consumer_id_list=tuple(group.client_ids))
        return Reply(body=body.encode())

    def check_config(self, exchange: Exchange) -> Reply:
        """CHECK_CLIENT_CONFIG: whether the broker can filter as this subscription wants."""
        subscription = CheckClientRequestBody.decode(exchange.command.body).subscription_data
        try:
            self._selector.check(subscription)
        except FilterError as error:
            remark = str(error)[:REMARK_SIZE_MAX]
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        return OK

    def lock(self, exchange: Exchange) -> Reply:
        """LOCK_BATCH_MQ: take or renew queues for consumption in order."""
        body = _lock_body(exchange)
        taken = self._locks.lock(
            body.consumer_group,
            body.client_id,
            [key for key in map(_queue_key, body.mq_set) if self._is_ours(key)],
            now_ms=self._clock.monotonic_ms(),
        )
        self._locks.save(self._store)
        queues = tuple(
            MessageQueue(topic, broker_name, queue_id) for broker_name, topic, queue_id in taken
        )
        return Reply(body=LockBatchResponseBody(lock_ok_mq_set=queues).encode())

    def unlock(self, exchange: Exchange) -> Reply:
        """UNLOCK_BATCH_MQ: give queues up."""
        body = _lock_body(exchange)
        self._locks.unlock(
            body.consumer_group,
            body.client_id,
            map(_queue_key, body.mq_set),
        )
        self._locks.save(self._store)
        return OK

    def _is_ours(self, key: QueueKey) -> bool:
        """Whether there is such a queue: locks of others would only fill the log."""
        broker_name, topic, queue_id = key
        config = self._topics.get(topic)
        own = broker_name == self._broker_name
        return own and config is not None and 0 <= queue_id < config.queues

    def _role_changed(self, role: ShardRole) -> None:
        if role.leads:
            saved = self._store.meta(LOCK_KIND)
            self._locks.load(saved, now_ms=self._clock.monotonic_ms())
        else:
            self._locks.clear()

    def _tell_members(self, name: str) -> None:
        settings, group = self._groups.get(name), self._clients.consumers(name)
        if settings is not None and not settings.notify_consumer_ids_changed_enable:
            return
        for channel in tuple(group.members) if group is not None else ():
            channel.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name})


def _queue_key(queue: MessageQueue) -> QueueKey:
    return (queue.broker_name, queue.topic, queue.queue_id)


def _lock_body(exchange: Exchange) -> LockBatchRequestBody:
    """Return who wants which queues: its names go into the log."""
    body = LockBatchRequestBody.decode(exchange.command.body)
    problem = names.group_problem(body.consumer_group)
    if problem := problem or names.word_problem("client id", body.client_id):
        raise rules.invalid(problem)
    return body


def _problem(data: HeartbeatData) -> str | None:
    """Return why nothing of a heartbeat is kept, or None."""
    if problem := names.word_problem("client id", data.client_id):
        return problem
    for producer in data.producer_data_set:
        if problem := names.word_problem("producer group", producer.group_name):
            return problem
    for consumer in data.consumer_data_set:
        if problem := rules.group_problem(consumer.group_name):
            return problem
        for subscription in consumer.subscription_data_set:
            if problem := _subscription_problem(subscription):
                return problem
    return None


def _subscription_problem(wanted: SubscriptionData) -> str | None:
    size = len(wanted.sub_string) + sum(map(len, wanted.tags_set)) + len(wanted.code_set)
    if size > names.SUBSCRIPTION_SIZE_MAX:
        return f"the subscription has {size} characters, at most {names.SUBSCRIPTION_SIZE_MAX}"
    problem = names.word_problem("subscription's topic", wanted.topic)
    return problem or names.word_problem("expression type", wanted.expression_type)
