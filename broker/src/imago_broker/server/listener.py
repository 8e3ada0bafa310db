"""A listening port: accepts within limits, survives a lack of file descriptors, drains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one port may be asked for."""

    connections_max: int = 20_000
    connections_per_address_max: int = 10_000


class Listener:
    """One TCP port whose connections are served by `protocol_factory`."""

    def __init__(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.Protocol],
        limits: ListenerLimits = ListenerLimits(),
    ) -> None:
        self.host = host
        self.port = port
        """The bound port, once started; 0 before then means any free one."""

    @property
    def connections(self) -> int:
        """How many connections are open."""
        raise NotImplementedError

    async def start(self) -> None:
        """Bind and accept; OSError when the port cannot be had."""
        raise NotImplementedError

    async def stop(self, *, drain_seconds: float = 0.0) -> None:
        """Accept no more, let the sessions finish what is in flight, then close them."""
        raise NotImplementedError
