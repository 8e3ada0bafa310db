"""The topics of this shard: made, changed, deleted; kept in the log's metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.core.acknowledgement import Acknowledgement
    from imago_broker.model.topics import TopicConfig
    from imago_wire.record import QueueTail

TopicChange = Callable[[str, "TopicConfig | None"], None]
"""(name, new settings, or None when the topic is deleted)."""


class TopicHandle:
    """What the put path needs of one topic, found by one look-up.

    Replaced, never changed, when the topic changes: hold it no longer than one loop turn.
    """

    __slots__ = ("closed", "config", "level", "metaq_ready", "tails")

    config: TopicConfig
    level: Acknowledgement
    tails: list[QueueTail]
    """The write queues, by number."""


class TopicService:
    """All topics. Changes are in the log before these methods return."""

    on_change: list[TopicChange]
    """Called after each change, for registration and caches."""

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic's settings."""
        raise NotImplementedError

    def all(self) -> list[TopicConfig]:
        """Return the settings of all topics, by name."""
        raise NotImplementedError

    def handle(self, name: str) -> TopicHandle | None:
        """Return what the put path needs, or None for an unknown topic."""
        raise NotImplementedError

    def create_or_update(self, config: TopicConfig) -> TopicConfig:
        """Make the topic, or change it to these settings; return what is now in force."""
        raise NotImplementedError

    def delete(self, name: str) -> bool:
        """Delete a topic with its messages; False when there is none."""
        raise NotImplementedError

    def auto_create(
        self, name: str, *, default_topic: str, default_queues: int, for_retry: bool = False
    ) -> TopicConfig | None:
        """Make a topic as RocketMQ does for a send to an unknown one; None: it may not be made."""
        raise NotImplementedError

    def touch_metaq(self, name: str) -> None:
        """Note the first use of a topic through MetaQ: the store keeps MetaQ segments from now."""
        raise NotImplementedError
