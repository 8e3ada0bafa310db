"""How a broker calls itself towards MetaQ clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.metrics import MetaqCounters
    from imago_broker.ports import Clock
    from imago_broker.processors.metaq.realtime import RealTimeStatistics
    from imago_broker.service.serving_rules import ServingRules


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqIdentity:
    """The number and the address that error texts and statistics carry."""

    broker_id: int
    host: str
    port: int

    @property
    def url(self) -> str:
        """The name of the broker in every error text: ``meta://host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"meta://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqFace:
    """What every command meets: who this broker is, what it serves, and what is counted."""

    identity: MetaqIdentity
    settings: LiveSettings[MetaqSection]
    serving_rules: ServingRules
    clock: Clock
    counters: MetaqCounters
    realtime: RealTimeStatistics
