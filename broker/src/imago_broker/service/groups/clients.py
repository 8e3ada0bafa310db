"""Who is connected: producers and consumers by group, as their heartbeats say.

A connection that closes takes its clients along at once; a client that is silent for two minutes
is forgotten and its connection closed. Whenever the members or the subscriptions of a consumer
group change, every member is notified, so that all of them divide the queues again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from imago_wire.errors import WrongError
from imago_wire.remoting.bodies.client import MessageModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from imago_broker.service.groups.channel import Channel
    from imago_wire.remoting.bodies.client import (
        ConsumeFromWhere,
        ConsumerData,
        ConsumeType,
        HeartbeatData,
        SubscriptionData,
    )
    from imago_wire.remoting.peer import Language

logger = logging.getLogger(__name__)

CLIENT_LIFE_MS = 120_000
"""RocketMQ's channelExpiredTimeout: clients beat every 30 s."""


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """One member of a group, as of its last heartbeat."""

    channel: Channel
    client_id: str
    language: Language
    version: int
    seen_ms: int
    """Epoch milliseconds of the last heartbeat."""
    user: str | None = None
    """Whose heartbeat it was; None: nobody checks."""


@dataclass(slots=True)
class ConsumerGroup:
    """The live members of one consumer group and what they want."""

    name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    members: dict[Channel, ConnectedClient] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    subscription_bytes: int = 0
    """About what those take."""

    @property
    def client_ids(self) -> list[str]:
        """The members' ids, each once, in order of joining."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def member(self, client_id: str) -> ConnectedClient | None:
        """Return the member of that id."""
        for member in self.members.values():
            if member.client_id == client_id:
                return member
        return None


class TooManyGroupsError(WrongError):
    """One connection names more groups, one group more topics, or all more than is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """What is kept of clients: the first two of one connection or group, the others of all."""

    groups_per_client_max: int = 1024
    topics_per_group_max: int = 10_000
    memberships_max: int = 500_000
    producer_groups_max: int = 100_000
    subscription_bytes_max: int = 128 << 20


class ClientRegistry:
    """All live clients. Times are epoch milliseconds."""

    def __init__(
        self,
        may_publish: Callable[[ConnectedClient, str], bool],
        limits: ClientLimits | None = None,
        *,
        life_ms: int = CLIENT_LIFE_MS,
    ) -> None:
        """`may_publish`: whether a producer may be shown messages that its group has sent."""
        self._limits, self._life_ms = limits or ClientLimits(), life_ms
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Channel, ConnectedClient]] = {}
        self._groups_of: dict[Channel, tuple[set[str], set[str]]] = {}
        """Producer and consumer groups that were joined through each connection."""
        self._producing: dict[str, ConnectedClient] = {}
        """The newest connection of each client that produces, by its id; of a user's that is gone,
        too, while it may come back: nobody else takes its name meanwhile."""
        self._produces_as: dict[Channel, str] = {}
        """The id under which each connection is there."""
        self.may_publish = may_publish
        self.memberships = 0
        """Groups of connections, of producers and consumers, each counted for each connection."""
        self.subscription_bytes = 0
        """About what the subscriptions of all groups take."""
        self.on_group_change: list[Callable[[ConsumerGroup], None]] = []
        """Called after the members or subscriptions of a group changed."""

    def heartbeat(
        self,
        channel: Channel,
        data: HeartbeatData,
        language: Language,
        version: int,
        now_ms: int,
        user: str | None = None,
    ) -> None:
        """Note that a client lives, and everything that it says of its groups."""
        self._check_limits(channel, data)
        client = ConnectedClient(channel, data.client_id, language, version, now_ms, user)
        joined = self._groups_of.setdefault(channel, (set(), set()))
        before = len(joined[0]) + len(joined[1])
        for producer in data.producer_data_set:
            self._producers.setdefault(producer.group_name, {})[channel] = client
            joined[0].add(producer.group_name)
        if joined[0]:
            self._note_producing(client)
        for consumer in data.consumer_data_set:
            joined[1].add(consumer.group_name)
        self.memberships += len(joined[0]) + len(joined[1]) - before
        for consumer in data.consumer_data_set:
            self._join(consumer, client)

    def _check_limits(self, channel: Channel, data: HeartbeatData) -> None:
        producers, consumers = self._groups_of.get(channel, (set(), set()))
        told = {one.group_name for one in data.producer_data_set} | producers
        count = len(told) + len({one.group_name for one in data.consumer_data_set} | consumers)
        limits, held = self._limits, self.memberships
        if count > limits.groups_per_client_max:
            raise TooManyGroupsError(
                f"{count} groups of one connection, at most {limits.groups_per_client_max}"
            )
        if held + count - len(producers) - len(consumers) > limits.memberships_max:
            raise TooManyGroupsError(
                f"{held} memberships of all clients, at most {limits.memberships_max}"
            )
        if len(self._producers) + len(told - self._producers.keys()) > limits.producer_groups_max:
            raise TooManyGroupsError(
                f"{len(self._producers)} producer groups, at most {limits.producer_groups_max}"
            )
        size = self.subscription_bytes + sum(map(self._grown, data.consumer_data_set))
        if size > limits.subscription_bytes_max:
            raise TooManyGroupsError(
                f"{size} bytes of subscriptions of all groups, at most"
                f" {limits.subscription_bytes_max}"
            )
        topics = max((len(one.subscription_data_set) for one in data.consumer_data_set), default=0)
        if topics > limits.topics_per_group_max:
            raise TooManyGroupsError(
                f"{topics} subscriptions of one group, at most {limits.topics_per_group_max}"
            )

    def _grown(self, told: ConsumerData) -> int:
        group = self._consumers.get(told.group_name)
        known = 0 if group is None else group.subscription_bytes
        return sum(map(_size, told.subscription_data_set)) - known

    def unregister(
        self, channel: Channel, *, producer_group: str | None, consumer_group: str | None
    ) -> None:
        """Take a client out of a group because it says so."""
        producers, consumers = self._groups_of.get(channel, (set(), set()))
        before = len(producers) + len(consumers)
        if producer_group:
            producers.discard(producer_group)
            self._leave_producers(producer_group, channel)
        if consumer_group:
            consumers.discard(consumer_group)
            self._leave_consumers(consumer_group, channel)
        self.memberships -= before - len(producers) - len(consumers)

    def closed(self, channel: Channel) -> None:
        """Take everything out that was connected through this channel."""
        producers, consumers = self._groups_of.pop(channel, (set(), set()))
        self.memberships -= len(producers) + len(consumers)
        for name in producers:
            self._leave_producers(name, channel)
        for name in consumers:
            self._leave_consumers(name, channel)

    def sweep(self, now_ms: int) -> None:
        """Close the connections of clients that have been silent too long."""
        silent = {
            client.channel
            for members in self._all_members()
            for client in members.values()
            if now_ms - client.seen_ms > self._life_ms
        }
        for channel in silent:
            logger.info("connection_closed peer=%s reason=member_silent", channel.peer)
            self.closed(channel)
            channel.close()
        self._forget_gone(now_ms)

    def consumers(self, group: str) -> ConsumerGroup | None:
        """Return the live members of a consumer group; None when there are none."""
        return self._consumers.get(group)

    def producers(self, group: str) -> Mapping[Channel, ConnectedClient]:
        """Return the live members of a producer group."""
        return self._producers.get(group, {})

    def producer_channel(self, client_id: str) -> Channel | None:
        """Return the connection of a live client that produces, which is where replies go."""
        known = self._producing.get(client_id)
        return None if known is None else known.channel

    def producer_groups(self) -> Mapping[str, Mapping[Channel, ConnectedClient]]:
        """Return all live producers by group."""
        return self._producers

    def consumer_groups(self) -> Mapping[str, ConsumerGroup]:
        """Return all live consumer groups by name."""
        return self._consumers

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the live groups that subscribe to a topic."""
        return [name for name, group in self._consumers.items() if topic in group.subscriptions]

    def subscribed(self) -> dict[str, set[str]]:
        """Return by topic the live groups that subscribe to it and leave their progress here."""
        found: dict[str, set[str]] = {}
        for name, group in self._consumers.items():
            if group.message_model is not MessageModel.BROADCASTING:
                for topic in group.subscriptions:
                    found.setdefault(topic, set()).add(name)
        return found

    def _all_members(self) -> Iterable[Mapping[Channel, ConnectedClient]]:
        yield from self._producers.values()
        for group in self._consumers.values():
            yield group.members

    def _join(self, data: ConsumerData, client: ConnectedClient) -> None:
        group = self._consumers.get(data.group_name)
        if group is None:
            group = ConsumerGroup(
                data.group_name, data.consume_type, data.message_model, data.consume_from_where
            )
            self._consumers[data.group_name] = group
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        before = group.members.get(client.channel)
        group.members[client.channel] = client
        joined = before is None or replace(before, seen_ms=client.seen_ms) != client
        changed = _update(group.subscriptions, data.subscription_data_set)
        self._measure(group)
        if changed or joined:
            self._changed(group)

    def _measure(self, group: ConsumerGroup) -> None:
        """Count again what a group's subscriptions take."""
        self.subscription_bytes -= group.subscription_bytes
        group.subscription_bytes = sum(map(_size, group.subscriptions.values()))
        self.subscription_bytes += group.subscription_bytes

    def _note_producing(self, client: ConnectedClient) -> None:
        if self._produces_as.get(client.channel, client.client_id) != client.client_id:
            self._stop_producing(client.channel)
        known = self._producing.get(client.client_id)
        # Replies to one user's client are not another user's who takes its name.
        if known is None or known.user == client.user or self._is_over(known, client.seen_ms):
            self._producing[client.client_id] = client
            self._produces_as[client.channel] = client.client_id
            if len(self._producing) > self._limits.producer_groups_max:
                self._forget_gone()

    def _is_over(self, known: ConnectedClient, now_ms: int) -> bool:
        """Whether a client that produced will not come back under its name."""
        return not known.channel.is_open and (
            known.user is None or now_ms - known.seen_ms > self._life_ms
        )

    def _forget_gone(self, now_ms: int | None = None) -> None:
        """Let go of the names of clients that are over by now; without a time of all that left."""
        for client_id, known in list(self._producing.items()):
            over = not known.channel.is_open if now_ms is None else self._is_over(known, now_ms)
            if over:
                del self._producing[client_id]

    def _stop_producing(self, channel: Channel) -> None:
        client_id = self._produces_as.pop(channel, "")
        known = self._producing.get(client_id)
        if known is None or known.channel is not channel:
            return
        if known.user is None or channel.is_open:  # else it may come back
            del self._producing[client_id]

    def _leave_producers(self, name: str, channel: Channel) -> None:
        members = self._producers.get(name, {})
        members.pop(channel, None)
        if not members:
            self._producers.pop(name, None)
        joined = self._groups_of.get(channel)
        if joined is None or not joined[0]:  # else it produces still, in another group
            self._stop_producing(channel)

    def _leave_consumers(self, name: str, channel: Channel) -> None:
        group = self._consumers.get(name)
        if group is None or group.members.pop(channel, None) is None:
            return
        if not group.members:
            del self._consumers[name]
            self.subscription_bytes -= group.subscription_bytes
        self._changed(group)

    def _changed(self, group: ConsumerGroup) -> None:
        for listener in self.on_group_change:
            listener(group)


def _update(current: dict[str, SubscriptionData], told: Iterable[SubscriptionData]) -> bool:
    """Take newer subscriptions over, drop those no longer told; return whether that changed any."""
    wanted = {subscription.topic: subscription for subscription in told}
    changed = False
    for topic, subscription in wanted.items():
        old = current.get(topic)
        if old is None or old.sub_version < subscription.sub_version:
            changed = changed or old is None or not _same(old, subscription)
            current[topic] = subscription
    for topic in [topic for topic in current if topic not in wanted]:
        del current[topic]
        changed = True
    return changed


def _same(one: SubscriptionData, other: SubscriptionData) -> bool:
    return (one.expression_type, one.sub_string) == (other.expression_type, other.sub_string)


def _size(wanted: SubscriptionData) -> int:
    """Return about how many bytes a subscription takes."""
    tags = sum(64 + len(tag) for tag in wanted.tags_set)
    return 512 + len(wanted.sub_string) + tags + 32 * len(wanted.code_set)
