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
        try:
            beat = await self._tell_brokers()
            beat.check()
        except BaseException:
            # Cancelled, or nobody answered in time: who knows of this member all the same would
            # keep queues for it.
            await self.leave()
            raise
        self._log(beat)

    async def beat(self) -> None:
        """Tell all brokers of the topics; those that cannot be told are logged."""
        self._log(await self._tell_brokers())

    async def leave(self) -> None:
        """Be a member no more."""
        await self._driver.run(
            membership.unregister(self._state, self._config, self._subscriptions.values())
        )

    async def _tell_brokers(self) -> membership.Beat:
        return await self._driver.run(
            membership.heartbeat(self._state, self._config, self._subscriptions.values())
        )

    def _log(self, beat: membership.Beat) -> None:
        for error in beat.errors:
            log.warning("heartbeat_failed group=%s error=%s", self._config.group, error)
