"""How a broker calls itself towards RocketMQ clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisBroker:
    """Who answers RocketMQ's clients, and how it is set at the moment."""

    identity: RocketmqIdentity
    settings: LiveSettings[RocketmqSection]
