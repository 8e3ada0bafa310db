"""How a broker calls itself towards MetaQ clients."""

from __future__ import annotations

from dataclasses import dataclass


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
