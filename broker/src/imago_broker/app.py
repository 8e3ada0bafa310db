"""A broker process: builds all parts, starts them in order, stops them in reverse."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.config import BrokerConfig
    from imago_broker.ports import Clock, Coordinator


class Broker:
    """One broker in this process. `await start()`, use the ports, `await stop()`."""

    metaq_port: int
    rocketmq_port: int
    fast_port: int
    namesrv_port: int
    admin_port: int
    """Bound ports, known after `start`; 0 where a listener is not enabled."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        coordinator: Coordinator | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Without a coordinator one is made as the configuration's `zookeeper.connect` says."""
        self.config = config

    async def start(self) -> None:
        """Open the store, then the registry, then the ports; FatalError says why it cannot."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Accept no more, answer what is in flight, sync, mark the store clean."""
        raise NotImplementedError


async def run(config: BrokerConfig) -> int:
    """Serve until SIGTERM or SIGINT; return the process's exit code."""
    raise NotImplementedError
