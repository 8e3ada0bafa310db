"""How a broker calls itself towards RocketMQ clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqIdentity:
    """The names and the address that routes and answers carry."""

    cluster: str
    broker_name: str
    host: str
    """Advertised to clients."""
    port: int

    @property
    def address(self) -> str:
        """What routes and answers name."""
        return f"{self.host}:{self.port}"
