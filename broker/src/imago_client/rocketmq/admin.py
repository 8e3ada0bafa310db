"""The asyncio face of administration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.core import administration as parts
from imago_client.core.lookup import all_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_client.core.administration.administration import QueueBounds
    from imago_client.core.administration.group_administration import GroupDescription
    from imago_client.core.administration.group_resets import ResetTo
    from imago_client.core.administration.shards import MissingShard, ShardInfo
    from imago_client.core.effects import Runner
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.received import ReceivedMessage
    from imago_wire.remoting.bodies.config import SubscriptionGroupConfig, TopicConfig


class Admin:
    """Topics, groups, offsets and the cluster; `Client.admin`. A refusal raises BrokerError."""

    def __init__(self, state: ClientState, driver: Runner) -> None:
        self._state, self._driver = state, driver

    async def shards(self) -> list[ShardInfo]:
        """Return all shards with a live broker."""
        return await self._driver.run(parts.shards.shards(self._state))

    async def missing_shards(self, topic: str | None = None) -> list[MissingShard]:
        """Return the shards that nobody leads now, those with queues of `topic` if one is named."""
        return await self._driver.run(parts.shards.missing_shards(self._state, topic))

    async def placed_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic to read, also those of shards that are away."""
        return await self._driver.run(parts.shards.placed_queues(self._state, topic))

    async def metaq_servers(self) -> dict[str, dict[int, str]]:
        """Return by shard the MetaQ addresses of its members, the master's as 0."""
        return await self._driver.run(parts.shards.metaq_servers(self._state))

    async def topics(self) -> list[str]:
        """Return the names of all topics, the system's own too."""
        return await self._driver.run(all_topics(self._state))

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
        exist_ok: bool = True,
    ) -> dict[str, str]:
        """Make a topic with so many queues on each shard, 4 unless given; return shard -> master.

        One that is there stays as it is; cordoned shards are left out. TopicExistsError: what is
        named here is other there, or `exist_ok` is False. TryAgainError: a shard has no master.
        HalfDoneError: a master did not answer.
        """
        settings = parts.topic_changes.TopicSettings(
            queues=queues, perm=perm, attributes=attributes or {}
        )
        return await self._driver.run(
            parts.topic_changes.create_topic(self._state, topic, settings, exist_ok=exist_ok)
        )

    async def alter_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
        hide_messages: bool = False,
    ) -> int:
        """Change what is named of a topic; return how many messages readers no longer find.

        HidesMessagesError: queues that would go hold messages, and `hide_messages` is False.
        HalfDoneError: not done on every shard that has it.
        """
        settings = parts.topic_changes.TopicSettings(
            queues=queues, perm=perm, attributes=attributes or {}
        )
        return await self._driver.run(
            parts.topic_changes.alter_topic(
                self._state, topic, settings, hide_messages=hide_messages
            )
        )

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic on every shard. HalfDoneError: not done on all of them."""
        await self._driver.run(parts.administration.delete_topic(self._state, topic))

    async def topic_settings(self, topic: str) -> dict[str, TopicConfig]:
        """Return a topic's settings on each shard that has it."""
        return await self._driver.run(parts.topic_changes.topic_settings(self._state, topic))

    async def topic_bounds(self, topic: str, *, sizes: bool = False) -> list[QueueBounds]:
        """Return the offsets that each queue of a topic holds; with `sizes` also its bytes."""
        asked = parts.administration.topic_bounds(self._state, topic, sizes=sizes)
        return await self._driver.run(asked)

    async def messages_by_key(
        self, topic: str, key: str, *, count_max: int = 32, begin_ms: int = 0, end_ms: int = 1 << 62
    ) -> list[ReceivedMessage]:
        """Return messages by one of their keys or by their unique id; times in ms since 1970."""
        return await self._driver.run(
            parts.administration.messages_by_key(
                self._state, topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
            )
        )

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """Return all consumer groups with their settings."""
        return await self._driver.run(parts.group_administration.groups(self._state))

    async def group_settings(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's settings; None: no shard has any."""
        return await self._driver.run(parts.group_administration.group_settings(self._state, group))

    async def has_group(self, group: str) -> bool:
        """Return whether there is a group: one with settings, offsets or members."""
        return await self._driver.run(parts.group_administration.has_group(self._state, group))

    async def committed_offsets(self) -> dict[str, dict[MessageQueue, int]]:
        """Return the offsets that all groups have committed, by group and queue."""
        return await self._driver.run(parts.group_administration.committed_offsets(self._state))

    async def create_group(self, config: SubscriptionGroupConfig) -> None:
        """Create or change a consumer group on every shard. HalfDoneError: not done on all."""
        await self._driver.run(parts.group_administration.create_group(self._state, config))

    async def delete_group(self, group: str) -> None:
        """Delete a consumer group with its offsets. HalfDoneError: not done on every shard."""
        await self._driver.run(parts.group_administration.delete_group(self._state, group))

    async def describe_group(self, group: str) -> GroupDescription:
        """Return a group's members, subscriptions and progress."""
        return await self._driver.run(parts.group_administration.describe_group(self._state, group))

    async def set_request_mode(
        self, group: str, topic: str, mode: str, *, share_queues: int = 0
    ) -> None:
        """Have consumers whose queues brokers deal out read a topic by "pull" or by "pop".

        `share_queues`: how many queues each member of a group that pops shares; 0: all.
        """
        await self._driver.run(
            parts.group_administration.set_request_mode(
                self._state, group, topic, mode, share_queues
            )
        )

    async def group_delays(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Return how many ms the oldest unread message of each queue has waited for a group."""
        return await self._driver.run(
            parts.group_administration.group_delays(self._state, group, topic)
        )

    async def group_owners(
        self, found: GroupDescription, *, seconds: float = 2.0
    ) -> dict[MessageQueue, str] | None:
        """Return which member reads each queue of a group; None: some member does not tell."""
        operation = parts.group_administration.group_owners(self._state, found, seconds)
        return await self._driver.run(operation)

    async def reset_targets(self, topic: str, to: ResetTo | str | int) -> dict[MessageQueue, int]:
        """Return the offsets that `reset_group` would set, and set none."""
        return await self._driver.run(parts.group_resets.reset_targets(self._state, topic, to))

    async def reset_group(
        self, group: str, topic: str, to: ResetTo | str | int
    ) -> dict[MessageQueue, int]:
        """Move a group to the beginning, the end or a time (ms); return the new offsets."""
        return await self._driver.run(parts.group_resets.reset_group(self._state, group, topic, to))

    async def move_group(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Have a group and its members go on at these offsets in these queues."""
        await self._driver.run(parts.group_resets.move_group(self._state, group, offsets))
