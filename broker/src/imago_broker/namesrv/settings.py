"""Settings of the name service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServiceConfig:
    """Settings of the name service."""

    host: str = "0.0.0.0"  # noqa: S104  the name service is what clients are pointed to
    port: int = 9876
    order_messages: bool = False
    """Whether routes carry the order configuration of KV namespace ORDER_TOPIC_CONFIG."""
