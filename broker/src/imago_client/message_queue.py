"""Names of queues."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one shard (RocketMQ calls the shard's name brokerName)."""

    topic: str
    shard: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.shard}/{self.queue_id}"
