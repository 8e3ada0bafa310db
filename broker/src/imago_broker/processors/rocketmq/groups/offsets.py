"""Offsets: of queues (smallest, end, by time) and of consumer groups."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.groups.fetched_later import when_fetched
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.pull import (
    BoundaryType,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

if TYPE_CHECKING:
    from imago_broker.ports import Registry
    from imago_broker.processors.rocketmq.pull.memory_window import MemoryWindow
    from imago_broker.processors.rocketmq.rules import GroupRules
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.groups.resets import PendingResets
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
NOT_FOUND_NOT_ZERO = "Not found, do not set to zero, maybe this group boot first"


INCARNATION_FIELD = "imagoIncarnation"
"""Asks for, and brings, what tells the topic from others of its name: our own clients use it."""
TOPIC_FIELD = "imagoTopicId"
"""With it: a number that no other topic in the world has."""
CLUSTER_FIELD = "imagoClusterId"
BOUNDS_FIELD = "imagoBounds"
"""Has the body say where the queues from the asked one on begin and end, 16 bytes each."""
BOUNDS_MAX: Final = 4096
"""Queues in one answer: the broker does nothing else meanwhile. Whoever wants more asks again."""


@dataclass(slots=True, eq=False, kw_only=True)
class OffsetProcessor:
    """The request codes that ask for or set an offset."""

    store: MessageStore
    registry: Registry
    topics: TopicService
    offsets: ConsumerOffsets
    resets: PendingResets
    group_rules: GroupRules
    memory: MemoryWindow

    def query(self, exchange: Exchange) -> Reply:
        """QUERY_CONSUMER_OFFSET: where the group is, or that it was never here."""
        header = QueryConsumerOffsetRequestHeader.from_ext(exchange.ext)
        offset = self.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is not None:
            return _offset(offset)
        if header.set_zero_if_not_found is False:
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND_NOT_ZERO)
        # A new group on a queue that lost nothing yet starts at 0 whatever it was told to do, so
        # that it does not miss what was sent just before it came. RocketMQ asks in addition that
        # offset 0 is still in memory, which stands for "recent".
        if self.memory.holds_first(header.topic, header.queue_id):
            return _offset(0)
        raise RequestError(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)

    def update(self, exchange: Exchange) -> Reply:
        """UPDATE_CONSUMER_OFFSET: the group has come so far."""
        header = UpdateConsumerOffsetRequestHeader.from_ext(exchange.ext)
        # Made at its first commit if need be: 4.9 clients commit before their first heartbeat.
        self.group_rules.require(header.consumer_group)
        config = self.topics.get(header.topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if not 0 <= header.queue_id < config.queues or header.commit_offset < 0:
            raise rules.invalid(
                f"QueueId {header.queue_id} or offset {header.commit_offset} is illegal"
            )
        if self.resets.pending(header.consumer_group, header.topic, header.queue_id):
            return Reply(remark="Offset has been previously reset")
        self.offsets.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset
        )
        if not exchange.command.is_oneway:
            # An answer is a promise; consumers commit one-way, which may be gathered.
            self.offsets.flush()
        return OK

    def end(self, exchange: Exchange) -> Reply:
        """GET_MAX_OFFSET: the offset that the next message gets."""
        header = GetMaxOffsetRequestHeader.from_ext(exchange.ext)
        ext = {"offset": str(self.store.queue_range(header.topic, header.queue_id)[1])}
        if exchange.ext.get(INCARNATION_FIELD) == "true":
            incarnation = self.store.incarnation(header.topic)
            if incarnation is not None:
                ext[INCARNATION_FIELD] = str(incarnation)
            identity = self.store.identities.of(header.topic)
            if identity is not None:
                ext[TOPIC_FIELD] = str(identity)
            if cluster_id := self.registry.view().cluster_id:
                ext[CLUSTER_FIELD] = cluster_id
        if exchange.ext.get(BOUNDS_FIELD) == "true":
            return Reply(ext=ext, body=self._bounds(header.topic, header.queue_id))
        return Reply(ext=ext)

    def _bounds(self, topic: str, first: int) -> bytes:
        config = self.topics.get(topic)
        last = 0 if config is None else min(config.queues, first + BOUNDS_MAX)
        told = [at for queue in range(first, last) for at in self.store.queue_range(topic, queue)]
        return struct.pack(f">{len(told)}q", *told)

    def smallest(self, exchange: Exchange) -> Reply:
        """GET_MIN_OFFSET: the first message that is still stored."""
        header = GetMinOffsetRequestHeader.from_ext(exchange.ext)
        return _offset(self.store.queue_range(header.topic, header.queue_id)[0])

    def by_time(self, exchange: Exchange) -> Reply | None:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first at or after, or (UPPER) the last at or before."""
        header = SearchOffsetRequestHeader.from_ext(exchange.ext)
        upper = header.boundary_type is BoundaryType.UPPER
        queue, ms = (header.topic, header.queue_id), header.timestamp
        return when_fetched(
            exchange, lambda: _offset(self.store.offset_by_time(*queue, ms, upper=upper))
        )

    def earliest_time(self, exchange: Exchange) -> Reply:
        """GET_EARLIEST_MSG_STORETIME: when the oldest stored message came; -1 for none."""
        header = GetEarliestMsgStoretimeRequestHeader.from_ext(exchange.ext)
        low, _ = self.store.queue_range(header.topic, header.queue_id)
        stored_ms = self.store.store_time(header.topic, header.queue_id, low)
        return Reply(ext={"timestamp": str(-1 if stored_ms is None else stored_ms)})


def _offset(offset: int) -> Reply:
    return Reply(ext={"offset": str(offset)})
