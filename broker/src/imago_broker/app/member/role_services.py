"""What a change of this member's role means for the broker's services."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.app.member import reset_member
from imago_broker.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app.core_services import CoreServices
    from imago_broker.config import BrokerConfig
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.server.client_ports import ClientPorts

logger = logging.getLogger(__name__)

LINGER_LOOK_SECONDS = 0.1


class RoleServices:
    """Begins and ends what only a master does; `replication.parts.Host` for the shell."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        core: CoreServices,
        rocketmq: RocketmqAssembly,
        client_ports: ClientPorts,
        fail: Callable[[FatalError], None],
    ) -> None:
        """`fail` ends the process."""
        self._config = config
        self._core = core
        self._serving_rules = rocketmq.broker.serving_rules
        self._features = rocketmq.features
        self._static_topics = rocketmq.names.static_topics
        self._held_pulls = rocketmq.delivery.hold
        self._client_ports = client_ports
        self._fail = fail
        self._handing_over = False

    def apply(self, config: BrokerConfig) -> None:
        """Put changed settings in force."""
        self._config = config

    def lead(self, epoch: int) -> None:
        """Begin to serve as master."""
        rules, messages = self._serving_rules, self._core.messages
        rules.role.settled_at = messages.store.log_end
        self._core.access.awaited.begin()
        try:
            self._core.lead(self._config)
        except FatalError as error:
            self._fail(error)
        # Until then there may be messages that no reader sees and nobody would be woken for.
        messages.when_visible(rules.role.settled_at, self._settled_in)
        logger.info("mastership_begins shard=%d epoch=%d", self._config.broker.shard, epoch)

    def _settled_in(self) -> None:
        for feature in self._features:
            feature.start()
        self._core.metaq_transactions.start()
        self._static_topics.start()
        self._held_pulls.look_at_all()

    def hold(self) -> None:
        """Let new requests wait while leadership is handed over."""
        self._handing_over = True
        self._client_ports.hold_puts()

    def release(self) -> None:
        """Serve what waits or was relayed: this broker is the master."""
        self._handing_over = False
        self._client_ports.release()

    def step_down(self, why: str) -> None:
        """Serve as master no more."""
        for feature in reversed(self._features):
            feature.stop()
        self._core.metaq_transactions.stop()
        self._core.offsets.lost_leadership()
        self._core.access.awaited.end()
        self._held_pulls.release_all()
        if not self._handing_over:
            self._client_ports.release()
        logger.warning("mastership_ends shard=%d reason=%s", self._config.broker.shard, why)

    def follow(self, leader: BrokerRecord) -> None:
        """Pass clients on to the master that has taken over from us as planned."""
        if self._handing_over:
            self._handing_over = False
            self._client_ports.relay_to(leader, self._config.replication.handover_linger_ms)

    def readable(self) -> None:
        """Wake readers of a member that does not lead: they see more than before."""
        if self._serving_rules.slave_reads:
            self._held_pulls.look_at_all()

    async def linger(self) -> None:
        """Relay clients to the next master until they have left, or for the time that is set.

        Where nobody has taken over, requests that wait for that are answered here.
        """
        ports = self._client_ports
        while ports.relaying and ports.relays:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_LOOK_SECONDS):
                    await ports.until_relayed()
        if ports.waiting:
            ports.release()

    def reset_member(self, why: str) -> None:
        """End the process; the next start sets the data folder aside."""
        try:
            reset_member.decide(Path(self._config.broker.data_dir), why)
        except OSError as error:
            logger.warning("begin_anew_impossible reason=%s", error)
            return
        text = f"{why}; the shard has all messages elsewhere: the next start begins an empty log"
        self._fail(FatalError(text, exit_code=ExitCode.IO))

    def fail(self, reason: str, *, disk: bool) -> None:
        """End the process."""
        code = ExitCode.IO if disk else ExitCode.UNEXPECTED
        self._fail(FatalError(reason, exit_code=code))
