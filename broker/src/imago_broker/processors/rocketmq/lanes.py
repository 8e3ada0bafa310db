"""The classes of requests that RocketMQ keeps thread pools for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.exchange import Lane

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Lanes:
    """The classes of requests, with RocketMQ's own queue lengths as limits."""

    send: Lane
    pull: Lane
    query: Lane
    client: Lane
    heartbeat: Lane
    admin: Lane
    transaction: Lane

    @classmethod
    def made(cls) -> Lanes:
        """Make fresh, empty lanes."""
        return cls(
            send=Lane("send", 10_000),
            pull=Lane("pull", 100_000),
            query=Lane("query", 20_000),
            client=Lane("client", 100_000),
            heartbeat=Lane("heartbeat", 50_000),
            admin=Lane("admin", 10_000),
            transaction=Lane("transaction", 100_000),
        )

    @property
    def by_name(self) -> Mapping[str, Lane]:
        """The lanes by their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
