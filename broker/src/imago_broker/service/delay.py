"""Delayed messages: 18 levels, one queue of SCHEDULE_TOPIC_XXXX each, delivered in order.

A delayed message is a record of its level's queue with its real topic and queue in the properties
REAL_TOPIC and REAL_QID. When it is due it is put again, to where it belongs; how far each level
has come is replicated metadata, so that a restart repeats little and loses nothing.
"""

from __future__ import annotations

LEVEL_DELAYS_MS = tuple(
    1000 * s
    for s in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""RocketMQ's default messageDelayLevel: 1s 5s 10s 30s 1m … 10m 20m 30m 1h 2h."""


class DelayService:
    """Delivers what is due."""

    def start(self) -> None:
        """Look at every level and wait for what is due first."""
        raise NotImplementedError

    def stop(self) -> None:
        """Deliver nothing more."""
        raise NotImplementedError
