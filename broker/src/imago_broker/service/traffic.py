"""Counts of what went in and out, for the figures that RocketMQ's tools show."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Traffic:
    """Messages and bytes delivered to RocketMQ consumers since the start."""

    messages: int = 0
    bytes: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)

    def delivered(self, topic: str, count: int, size: int) -> None:
        """Note one answered pull."""
        self.messages += count
        self.bytes += size
        self.by_topic[topic] = self.by_topic.get(topic, 0) + count
