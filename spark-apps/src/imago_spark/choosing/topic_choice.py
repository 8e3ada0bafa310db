"""What a query reads, as its checkpoint remembers it: whether a later one reads as much."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_client.message_queue import MessageQueue
from imago_spark.errors import OffsetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChoice:
    """Topics by name, or some queues alone, or a pattern for topics' whole names."""

    topics: frozenset[str] = frozenset()
    assigned: frozenset[MessageQueue] = frozenset()
    pattern: str | None = None
    include_system: bool = False

    def covers(self, other: TopicChoice) -> bool:
        """Whether all that the other one reads, now or later, is read by this one too."""
        if other.pattern is not None:
            wide = self.include_system or not other.include_system
            return self.pattern == other.pattern and wide
        if other.topics:
            return all(self._has_whole(topic) for topic in other.topics)
        return all(
            queue in self.assigned or self._has_whole(queue.topic) for queue in other.assigned
        )

    def _has_whole(self, topic: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics

    def to_json(self) -> dict[str, Any]:
        """Return its form in a checkpoint: the options by which it was chosen."""
        if self.pattern is not None:
            return {"includeSystem": self.include_system, "subscribePattern": self.pattern}
        if self.assigned:
            return {"assign": _by_shard(sorted(self.assigned))}
        return {"subscribe": sorted(self.topics)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TopicChoice:
        """Read `to_json`'s form. OffsetError: it is something else."""
        try:
            if "subscribePattern" in value:
                return cls(
                    pattern=re.compile(value["subscribePattern"]).pattern,
                    include_system=bool(value["includeSystem"]),
                )
            if "assign" in value:
                return cls(
                    assigned=frozenset(
                        MessageQueue(topic, shard, int(number))
                        for topic, shards in value["assign"].items()
                        for shard, numbers in shards.items()
                        for number in numbers
                    )
                )
            return cls(topics=frozenset(map(str, value["subscribe"])))
        except (AttributeError, KeyError, TypeError, ValueError, re.error):
            raise OffsetError("checkpoint: its subscription names no topics") from None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        if self.assigned:
            return f"assign={','.join(map(str, sorted(self.assigned)))}"
        return f"subscribe={','.join(sorted(self.topics))}"


def _by_shard(queues: Iterable[MessageQueue]) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for queue in queues:
        found.setdefault(queue.topic, {}).setdefault(queue.shard, []).append(queue.queue_id)
    return found
