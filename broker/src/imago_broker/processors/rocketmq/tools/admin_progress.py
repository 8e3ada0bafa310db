"""How far consumer groups have come: shown, copied, compared, set again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.groups.resetting import body_of
from imago_wire.remoting.bodies.client import MessageQueue
from imago_wire.remoting.bodies.stats import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsetSerializeWrapper,
    OffsetWrapper,
    QueryCorrectionOffsetBody,
)
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.admin import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsRequestHeader,
    QueryCorrectionOffsetHeader,
)
from imago_wire.remoting.headers.client import ResetOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.processors.rocketmq.groups.resetting import OffsetResetter
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore


LAG_MIN, LAG_MAX = -(1 << 63), (1 << 63) - 1
"""A client may commit any offset, and a number of the tools has 64 bits."""


@dataclass(slots=True, eq=False, kw_only=True)
class ProgressAdmin:
    """The request codes about offsets of groups."""

    store: MessageStore
    topics: TopicService
    offsets: ConsumerOffsets
    groups: GroupService
    clients: ClientRegistry
    delay: DelayService
    identity: RocketmqIdentity
    resetter: OffsetResetter

    def stats(self, exchange: Exchange) -> Reply:
        """GET_CONSUME_STATS: each queue's end and the group's place in it."""
        header = GetConsumeStatsRequestHeader.from_ext(exchange.ext)
        wanted = [topic for topic in (header.topic_list or "").split(";") if topic]
        if header.topic:
            wanted.append(header.topic)
        group = header.consumer_group
        topics = wanted or self._topics_of(group)
        return Reply(body=self._stats(group, topics).encode())

    def all_stats(self, _: Exchange) -> Reply:
        """GET_BROKER_CONSUME_STATS: the same of all groups."""
        tables: list[Mapping[str, tuple[ConsumeStats, ...]]] = []
        behind = 0
        for config in self.groups.all():
            stats = self._stats(config.name, self._topics_of(config.name))
            if stats.offset_table:
                tables.append({config.name: (stats,)})
                behind += sum(
                    place.broker_offset - place.consumer_offset
                    for place in stats.offset_table.values()
                )
        body = ConsumeStatsList(
            broker_addr=self.identity.address,
            consume_stats_list=tuple(tables),
            total_diff=max(LAG_MIN, min(behind, LAG_MAX)),
        )
        return Reply(body=body.encode())

    def all_offsets(self, _: Exchange) -> Reply:
        """GET_ALL_CONSUMER_OFFSET."""
        table = {
            f"{topic}@{group}": dict(queues)
            for group in self.offsets.groups()
            for topic, queues in self.offsets.of_group(group).items()
        }
        return Reply(body=ConsumerOffsetSerializeWrapper(offset_table=table).encode())

    def delay_offsets(self, _: Exchange) -> Reply:
        """GET_ALL_DELAY_OFFSET."""
        table = {level: place for level, (place, _) in self.delay.offsets().items()}
        return Reply(body=DelayOffsetSerializeWrapper(offset_table=table).encode())

    def clone(self, exchange: Exchange) -> Reply:
        """CLONE_GROUP_OFFSET: one group goes on where another is."""
        header = CloneGroupOffsetRequestHeader.from_ext(exchange.ext)
        self._known_group(header.dest_group)
        for topic, queues in self.offsets.of_group(header.src_group).items():
            if header.topic in (None, "", topic):
                self.offsets.reset(header.dest_group, topic, queues)
        return OK

    def correction(self, exchange: Exchange) -> Reply:
        """QUERY_CORRECTION_OFFSET: the smallest place of all groups but those that are named.

        The greatest number stands for a queue in which no such group is behind the one compared.
        """
        header = QueryCorrectionOffsetHeader.from_ext(exchange.ext)
        by_group = self.offsets.of_topic(header.topic)
        left_out = set((header.filter_groups or "").split(","))
        found: dict[int, int] = {}
        for group in by_group.keys() - left_out:
            for queue_id, place in by_group[group].items():
                found[queue_id] = min(place, found.get(queue_id, place))
        for queue_id, own in by_group.get(header.compare_group, {}).items():
            if found.get(queue_id, LAG_MAX) > own:
                found[queue_id] = LAG_MAX
        return Reply(body=QueryCorrectionOffsetBody(correction_offsets=found).encode())

    def reset(self, exchange: Exchange) -> Reply:
        """INVOKE_BROKER_TO_RESET_OFFSET: the group shall go on from a time or an offset."""
        header = ResetOffsetRequestHeader.from_ext(exchange.ext)
        self._known_group(header.group)
        targets = self._targets(header)
        self.resetter.reset(header.group, header.topic, targets, timestamp=header.timestamp)
        broker = self.identity.broker_name
        return Reply(body=body_of(broker, header.topic, targets).encode())

    def _targets(self, header: ResetOffsetRequestHeader) -> dict[int, int]:
        config = self.topics.get(header.topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if header.queue_id < 0:
            queues = range(config.read_queues)
        elif header.queue_id < config.read_queues:
            queues = range(header.queue_id, header.queue_id + 1)
        else:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"Queue {header.queue_id} does not exist")
        return {queue_id: self._target(header, queue_id) for queue_id in queues}

    def _target(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        low, high = self.store.queue_range(header.topic, queue_id)
        if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
            if not low <= header.offset <= high:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {header.offset} not in consume queue range [{low}-{high}]",
                )
            return header.offset
        if header.timestamp < 0:
            target = high
        else:
            target = self.store.offset_by_time(header.topic, queue_id, header.timestamp)
        if header.is_force:
            return target
        current = self.offsets.query(header.group, header.topic, queue_id)
        return target if current is None else min(current, target)

    def _stats(self, group: str, topics: list[str]) -> ConsumeStats:
        live = self.clients.consumers(group)
        table = {}
        for topic in topics:
            config = self.topics.get(topic)
            if config is None or (live is not None and topic not in live.subscriptions):
                continue
            for queue_id in range(config.read_queues):
                table[self._queue(topic, queue_id)] = self._place(group, topic, queue_id)
        return ConsumeStats(offset_table=table)

    def _place(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        _, end = self.store.queue_range(topic, queue_id)
        place = self.offsets.query(group, topic, queue_id) or 0
        consumed = self.store.store_time(topic, queue_id, place - 1) if place > 0 else None
        return OffsetWrapper(
            broker_offset=end,
            consumer_offset=place,
            last_timestamp=consumed or 0,
            # What a consumer has in hand is not known here: none, rather than less than none.
            pull_offset=place,
        )

    def _topics_of(self, group: str) -> list[str]:
        live = self.clients.consumers(group)
        found = {
            *self.offsets.of_group(group),
            *(live.subscriptions if live else ()),
        }
        retry = names.retry_topic(group)
        if self.topics.get(retry) is not None:
            found.add(retry)
        return sorted(found)

    def _known_group(self, group: str) -> None:
        if self.groups.get(group) is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self.identity.broker_name, queue_id)
