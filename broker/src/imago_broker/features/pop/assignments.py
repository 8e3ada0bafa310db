"""Queues dealt out by the broker, for consumers that do not deal them out themselves.

Such a consumer asks for each of its topics (400) what to read, and how. What it gets covers the
topic's queues on all shards, as this broker's view of the cluster has them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imago_broker.core.placing.assignment import STRATEGIES, shared
from imago_broker.features.pop.request_modes import POP, PULL, RequestMode
from imago_broker.features.pop.waiting import ANY_QUEUE
from imago_broker.model import names
from imago_broker.model.registry.cluster import PERM_READ, PERM_WRITE
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_wire.remoting.bodies.client import MessageModel, MessageQueue
from imago_wire.remoting.bodies.pop import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.features.pop.request_modes import RequestModes
    from imago_broker.model.registry.cluster import ClusterView
    from imago_broker.ports import Registry
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.topics.topics import TopicService

SHARE_MAX = 65_536


class AssignmentProcessor:
    """QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE and GET_ALL_MESSAGE_REQUEST_MODE."""

    def __init__(
        self,
        *,
        modes: RequestModes,
        topics: TopicService,
        groups: GroupService,
        clients: ClientRegistry,
        registry: Registry,
        identity: RocketmqIdentity,
    ) -> None:
        self._modes, self._topics = modes, topics
        self._groups, self._clients = groups, clients
        self._registry, self._identity = registry, identity

    def query(self, exchange: Exchange) -> Reply:
        """QUERY_ASSIGNMENT: what a consumer reads of a topic, and whether it pulls or pops."""
        asked = QueryAssignmentRequestBody.decode(exchange.command.body)
        queues = self._queues(asked.topic)
        if not queues:
            return Reply(body=QueryAssignmentResponseBody().encode())
        if asked.message_model is MessageModel.BROADCASTING:
            return _reply(queues, PULL)
        group = self._clients.consumers(asked.consumer_group)
        members = sorted(group.client_ids) if group is not None else []
        if not members:
            return Reply(body=QueryAssignmentResponseBody().encode())
        if asked.strategy_name not in STRATEGIES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"QueryLoad: unsupported strategy [{asked.strategy_name[:64]}], must be one of "
                f"{', '.join(STRATEGIES)}",
            )
        if asked.client_id not in members:
            return _reply([], PULL)
        mode = RequestMode()
        if not asked.topic.startswith(names.RETRY_PREFIX):
            mode = self._modes.get(asked.consumer_group, asked.topic)
        index = members.index(asked.client_id)
        return _dealt(mode, asked.strategy_name, index, len(members), queues)

    def set_mode(self, exchange: Exchange) -> Reply:
        """SET_MESSAGE_REQUEST_MODE: how a group reads a topic from now on."""
        asked = SetMessageRequestModeRequestBody.decode(exchange.command.body)
        if asked.topic.startswith(names.RETRY_PREFIX):
            raise rules.forbidden("retry topic is not allowed to set mode")
        if asked.mode not in (PULL, POP):
            raise rules.invalid(f"mode {asked.mode[:64]!r} is neither PULL nor POP")
        if self._topics.get(asked.topic) is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{asked.topic}] not exist")
        if self._groups.get(asked.consumer_group) is None:
            raise rules.unknown_group(asked.consumer_group)
        share = max(-1, min(asked.pop_share_queue_num, SHARE_MAX))
        self._modes.set(asked.consumer_group, asked.topic, RequestMode(asked.mode, share))
        return OK

    def all_modes(self, _: Exchange) -> Reply:
        """GET_ALL_MESSAGE_REQUEST_MODE: what was set, by topic and group."""
        table: dict[str, dict[str, object]] = {}
        for group, topic, mode in self._modes.all():
            told = SetMessageRequestModeRequestBody(
                consumer_group=group,
                topic=topic,
                mode=mode.mode,
                pop_share_queue_num=mode.share_queues,
            )
            table.setdefault(topic, {})[group] = told.to_json()
        return Reply(body=json.dumps({"messageRequestModeMap": table}).encode())

    def _queues(self, topic: str) -> list[MessageQueue]:
        """Return a topic's readable queues on all shards, as all clients sort them."""
        counts = dict(_readable(self._registry.view(), topic))
        config = self._topics.get(topic)
        if not counts and config is not None and config.perm & PERM_READ:
            counts = {self._identity.broker_name: config.read_queues}  # not published yet
        return [
            MessageQueue(topic, name, queue_id)
            for name, count in sorted(counts.items())
            for queue_id in range(count)
        ]


def _readable(view: ClusterView, topic: str) -> Iterator[tuple[str, int]]:
    """Yield the live brokers, by name, on which a topic may be read, and its queues there."""
    for foreign in view.foreign:
        told = foreign.topics.get(topic, {})
        count = told.get("readQueueNums")
        if isinstance(count, int) and told.get("perm") in (PERM_READ, PERM_READ | PERM_WRITE):
            yield foreign.broker_name, count
    placement = view.topics.get(topic)
    if placement is not None:
        for broker in view.brokers:
            queues = placement.shards.get(broker.shard)
            if queues is not None and queues.perm & PERM_READ:
                yield broker.broker_name, queues.read


def _dealt(
    mode: RequestMode, strategy: str, index: int, members: int, queues: list[MessageQueue]
) -> Reply:
    if mode.mode == PULL:
        return _reply(STRATEGIES[strategy](index, members, queues), PULL)
    if mode.share_queues <= 0 or mode.share_queues >= members - 1:
        brokers = dict.fromkeys(queue.broker_name for queue in queues)
        return _reply([MessageQueue(queues[0].topic, name, ANY_QUEUE) for name in brokers], POP)
    return _reply(shared(strategy, index, members, queues, mode.share_queues), POP)


def _reply(queues: list[MessageQueue], mode: str) -> Reply:
    assignments = tuple(MessageQueueAssignment(message_queue=queue, mode=mode) for queue in queues)
    return Reply(body=QueryAssignmentResponseBody(message_queue_assignments=assignments).encode())
