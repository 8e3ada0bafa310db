"""The blocking client of the RocketMQ protocol."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

from imago_client.blocking.consumers import PullConsumer
from imago_client.blocking.driver import BlockingDriver
from imago_client.blocking.producer import Producer
from imago_client.config import ClientConfig, ProducerConfig
from imago_client.process import new_state

if TYPE_CHECKING:
    from types import TracebackType

    from imago_client.blocking.admin import Admin
    from imago_wire.remoting.command import RemotingCommand


class Client:
    """One client of a cluster; see `imago_client.Client` for what the parts do."""

    def __init__(self, bootstrap: str | ClientConfig) -> None:
        self.config = ClientConfig.of(bootstrap)
        self._state = new_state(self.config)
        self._driver = BlockingDriver(self.config, self._on_request)

    @cached_property
    def admin(self) -> Admin:
        """Administration of topics, groups and offsets."""
        # Loaded when used: it costs as much as the rest, and readers of topics never need it.
        from imago_client.blocking.admin import Admin  # noqa: PLC0415

        return Admin(self._state, self._driver)

    def producer(self, config: ProducerConfig | None = None) -> Producer:
        """Return a new producer."""
        return Producer(self._state, self._driver, config or ProducerConfig())

    def pull_consumer(self, group: str) -> PullConsumer:
        """Return a consumer that reads what the caller asks for, with the group's offsets."""
        return PullConsumer(self._state, self._driver, group)

    def close(self) -> None:
        """Close every connection."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _on_request(self, command: RemotingCommand) -> None:
        """Pass over what brokers say to group members: this client is in no group."""
