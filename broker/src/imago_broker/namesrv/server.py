"""The name service as a server: its table of request codes, and its own process.

Inside a broker the assembly serves `NameService.table` on the name service's port. As a process,
`run` does the same over a coordinator that only reads the registry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from imago_broker.processors.rocketmq.rows import Table, build_table

if TYPE_CHECKING:
    import asyncio

    from imago_broker.ports import Clock, Coordinator


class Serving(Protocol):
    """A listening port that can be stopped."""

    port: int

    async def stop(self) -> None: ...


Serve = Callable[[Table, str, int], Awaitable[Serving]]
"""(table, host, port): listen there with remoting sessions over the table. The command line passes
what `imago_broker.server` has; this package does not know servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServiceConfig:
    """Settings of the name service."""

    host: str = "0.0.0.0"  # noqa: S104  the name service is what clients are pointed to
    port: int = 9876
    order_messages: bool = False
    """Whether routes carry the order configuration of KV namespace ORDER_TOPIC_CONFIG."""


class NameService:
    """Answers name-service requests out of the coordinator's last snapshot."""

    def __init__(self, config: NameServiceConfig, coordinator: Coordinator, clock: Clock) -> None:
        self._config = config
        self._coordinator = coordinator
        self._clock = clock
        self.table: Table = build_table([])


async def run(
    config: NameServiceConfig,
    *,
    coordinator: Coordinator,
    clock: Clock,
    serve: Serve,
    stop: asyncio.Event,
) -> int:
    """Serve until `stop` is set; return the process's exit code (0). The coordinator is started
    and stopped here."""
    await coordinator.start()
    try:
        serving = await serve(
            NameService(config, coordinator, clock).table, config.host, config.port
        )
        try:
            await stop.wait()
        finally:
            await serving.stop()
    finally:
        await coordinator.stop()
    return 0
