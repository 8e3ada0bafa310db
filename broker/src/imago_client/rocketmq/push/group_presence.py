"""A push consumer's place in its group: heart beats to all brokers of its topics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_client.core.consuming import membership

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_client.config import ConsumerConfig
    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.state import ClientState
    from imago_client.errors import ClientError
    from imago_client.rocketmq.driver import Driver

log = logging.getLogger(__name__)


class GroupPresence:
    """Tells the brokers that this member is there, and that it goes."""

    def __init__(
        self,
        state: ClientState,
        driver: Driver,
        config: ConsumerConfig,
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        self._state, self._driver, self._config = state, driver, config
        self._subscriptions = subscriptions

    async def join(self) -> None:
        """Be a member. ClientError: a filter is refused, or no broker could be told."""
        wanted = self._subscriptions.values()
        group = self._config.group
        await self._driver.run(membership.check_filters(self._state, group, wanted))
        errors = await self._tell_brokers()
        if errors and not await self._is_known():
            raise errors[0]
        self._log_beat(errors)

    async def beat(self) -> None:
        """Tell all brokers of the topics; those that cannot be told are logged."""
        self._log_beat(await self._tell_brokers())

    async def leave(self) -> None:
        """Be a member no more."""
        await self._driver.run(
            membership.unregister(self._state, self._config, self._subscriptions.values())
        )

    async def _tell_brokers(self) -> list[ClientError]:
        return await self._driver.run(
            membership.heartbeat(self._state, self._config, self._subscriptions.values())
        )

    def _log_beat(self, errors: list[ClientError]) -> None:
        for error in errors:
            log.warning("heartbeat_failed group=%s error=%s", self._config.group, error)

    async def _is_known(self) -> bool:
        """Return whether any broker took the heart beat: it lists this member then."""
        for topic in self._subscriptions:
            mine = await self._driver.run(
                membership.assignment(self._state, self._config.group, topic)
            )
            if mine:
                return True
        return False
