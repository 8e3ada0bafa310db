"""The broker as a member of its shard: what each change of role means for its services."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.app import anew
from imago_broker.core.shard.values import ShardLimits
from imago_broker.errors import ExitCode, FatalError
from imago_broker.model.cluster import Role
from imago_broker.model.shard_status import LocalShardStatus
from imago_broker.ports import ShardRefusedError
from imago_broker.replication.addresses import Addresses
from imago_broker.replication.counters import ReplicationCounters
from imago_broker.replication.failures import Failures
from imago_broker.replication.member import MemberIdentity
from imago_broker.replication.parts import ShardParts
from imago_broker.replication.repair import Repairs
from imago_broker.replication.shell import ShardShell
from imago_broker.replication.status import followers
from imago_broker.service.gate import ShardGate
from imago_log.errors import DiskFullError, StoreError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from imago_broker.app.broker import Broker
    from imago_broker.config import BrokerConfig
    from imago_broker.model.cluster import BrokerRecord

logger = logging.getLogger(__name__)

LINGER_LOOK_SECONDS = 0.1
SETTLE_SECONDS_MAX = 10.0
"""How long a start waits for a role; without one the broker is up and says so."""


def is_member(config: BrokerConfig) -> bool:
    """Whether the shard keeps its leadership in a registry, and may have other members."""
    return config.zookeeper.connect != "none"


class ShardMember:
    """Made when the store is open; `replication.parts.Host` for the shell."""

    def __init__(self, broker: Broker) -> None:
        self.gate = ShardGate(broker.store, broker.clock)
        self.shell: ShardShell | None = None
        self.counters = ReplicationCounters()
        self.failures = Failures(Path(broker.config.broker.data_dir) / "failures")
        self.repairs = Repairs(
            broker.store.damaged_ranges, self._heal, lambda: broker.store.high_watermark
        )
        self._broker = broker
        self._handing_over = False
        self._settled = asyncio.Event()
        self._joined = False
        """Whether it has led or was in sync since its start, as far as anybody has asked."""

    async def start(self) -> None:
        """Take part in the shard; our registration stands."""
        broker, config = self._broker, self._broker.config
        replication = config.replication
        broker.serving_rules.lease_holds = self._lease_holds
        if config.broker.replicas > 1:
            broker.ports.replication.start()
        self.shell = ShardShell(
            ShardParts(
                identity=MemberIdentity(
                    shard=config.broker.shard,
                    uuid=broker.uuid,
                    view=broker.coordinator.view,
                    incarnation=self._incarnation,
                ),
                coordinator=broker.coordinator,
                store=broker.store,
                messages=broker.messages,
                gate=self.gate,
                role=broker.role,
                port=broker.ports.replication,
                refused=broker.ports.replication.refused,
                repairs=self.repairs,
                addresses=Addresses(replication.peer_networks, now_ms=broker.clock.monotonic_ms),
                failures=self.failures,
                counters=self.counters,
                record=broker.record,
                clock=broker.clock,
                rng=random.Random(),  # noqa: S311  spreads the members' attempts
                catch_up_bytes_per_second=replication.catch_up_bytes_per_second_max,
            ),
            ShardLimits(
                min_in_sync=config.min_in_sync,
                lag_ms_max=replication.lag_ms_max,
                lost_ms_max=replication.lost_ms_max,
            ),
            self,
        )
        broker.role.on_change.append(lambda _: self._settled.set())
        self.shell.start()
        try:
            async with asyncio.timeout(SETTLE_SECONDS_MAX):
                await self._settled.wait()
        except TimeoutError:
            logger.warning("role_unsettled seconds=%g", SETTLE_SECONDS_MAX)

    def apply(self, config: BrokerConfig) -> None:
        """Put changed settings in force."""
        if self.shell is not None:
            machine = self.shell.machine
            machine.limits = replace(machine.limits, min_in_sync=config.min_in_sync)

    async def leave(self, *, orderly: bool) -> None:
        """Hand over or leave the in-sync set.

        Not orderly: the disk is not to be trusted, and the others find out by themselves.
        """
        if self.shell is None:
            return
        if orderly:
            await self.shell.stop()
        else:
            await self.shell.close()

    async def linger(self) -> None:
        """Relay clients to the next master until they have left, or for the time that is set."""
        ports = self._broker.client_ports
        while ports.relaying and ports.relays:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_LOOK_SECONDS):
                    await ports.until_relayed()

    def shard_status(self) -> LocalShardStatus:
        """Return how things stand in the shard."""
        problems = self.problems()
        if self.shell is None:
            return LocalShardStatus(
                role=Role.ELECTING, epoch=0, settled=False, reason="it is starting"
            )
        role = self._broker.role.current
        return LocalShardStatus(
            role=role.role,
            epoch=role.epoch,
            settled=not problems,
            reason="; ".join(problems),
            leader_end=self.shell.leader_end,
            followers=followers(
                self.shell,
                self._broker.clock.monotonic_ms(),
                self._broker.store.damaged_ranges(),
            ),
        )

    async def handover(self, target: str | None, request_id: str) -> None:
        """Give leadership away; ShardRefusedError when that cannot be, and we lead on."""
        await self._wish(self._shell().hand_over(target, request_id))

    async def elect(self, request_id: str, *, allow_data_loss: bool) -> None:
        """Lead a shard without leader; ShardRefusedError when that may not be."""
        await self._wish(self._shell().elect(request_id, allow_data_loss=allow_data_loss))

    async def _wish(self, asked: Coroutine[Any, Any, tuple[bool, str]]) -> None:
        done, text = await asked
        if not done:
            raise ShardRefusedError(text)

    def _shell(self) -> ShardShell:
        if self.shell is None:
            raise ShardRefusedError("this broker is starting")
        return self.shell

    @property
    def problem(self) -> str:
        """What keeps this member from its part for good, as others are told."""
        last = self.failures.last
        if last is None or not last.lasts:
            return ""
        return "".join(letter if letter.isprintable() else " " for letter in str(last))

    def problems(self) -> list[str]:
        """Return why the member is not ready for its part."""
        if self.problem:
            needed = self.shell.needed_for if self.shell is not None else ""
            kept = f"; its log is kept: {needed}" if needed else ""
            return [f"{self.problem}{kept}"]
        role = self._broker.role.current
        if role.role is Role.ELECTING:
            return ["the shard has no master that this broker knows of"]
        if role.role is Role.SLAVE and self.shell is not None and not self.shell.in_sync:
            why = f": {self.shell.obstacle}" if self.shell.obstacle else ""
            return [f"this broker's copy of the log is not in sync yet{why}"]
        return []

    def unready(self) -> list[str]:
        """Return why clients are not sent here: a copy that was never whole since the start.

        One that was may lag, or be without a master for a while; it is reached all the same.
        """
        role = self._broker.role.current
        whole = role.leads or (self.shell is not None and self.shell.in_sync)
        self._joined = self._joined or whole
        if self.problem or (role.role is Role.SLAVE and not self._joined):
            return self.problems()
        return []

    def _heal(self, offset: int, data: bytes) -> int:
        try:
            return self._broker.store.heal(offset, data)
        except StoreError as error:
            logger.warning("heal_failed offset=%d reason=%s", offset, error)
            return 0

    def _lease_holds(self) -> bool:
        return self._broker.clock.monotonic_ms() < self.gate.lease_end_ms

    def _incarnation(self) -> int:
        registered = self._broker.coordinator.registered
        return 0 if registered is None else registered.incarnation

    # What the shell asks for

    def lead(self, epoch: int) -> None:
        """Begin to serve as master."""
        broker = self._broker
        broker.serving_rules.settled_at = broker.store.log_end
        try:
            broker.core.lead(broker.config)
        except DiskFullError as error:
            # It still serves what is there; the topics are made by whoever leads with room left.
            logger.warning("topics_not_made reason=%s", error)
        except FatalError as error:
            broker.fail(error)
        # Until then there may be messages that no reader sees and nobody would be woken for.
        broker.messages.when_visible(broker.serving_rules.settled_at, self._settled_in)
        logger.info("mastership_begins shard=%d epoch=%d", broker.config.broker.shard, epoch)

    def _settled_in(self) -> None:
        self._broker.rocketmq.delay.start()
        self._broker.rocketmq.hold.look_at_all()

    def hold(self) -> None:
        """Let new requests wait while leadership is handed over."""
        self._handing_over = True
        self._broker.client_ports.hold_puts()

    def release(self) -> None:
        """Serve what waits or was relayed: this broker is the master."""
        self._handing_over = False
        self._broker.client_ports.release()

    def step_down(self, why: str) -> None:
        """Serve as master no more."""
        broker = self._broker
        broker.rocketmq.delay.stop()
        broker.offsets.lost_leadership()
        broker.rocketmq.hold.release_all()
        if not self._handing_over:
            broker.client_ports.release()
        logger.warning("mastership_ends shard=%d reason=%s", broker.config.broker.shard, why)

    def follow(self, leader: BrokerRecord) -> None:
        """Pass clients on to the master that has taken over from us as planned."""
        broker = self._broker
        if self._handing_over:
            self._handing_over = False
            broker.client_ports.relay_to(leader, broker.config.replication.handover_linger_ms)

    def readable(self) -> None:
        """Wake readers of a member that does not lead: they see more than before."""
        if self._broker.serving_rules.slave_reads:
            self._broker.rocketmq.hold.look_at_all()

    def begin_anew(self, why: str) -> None:
        """End the process; the next start sets the data folder aside."""
        try:
            anew.decide(Path(self._broker.config.broker.data_dir), why)
        except OSError as error:
            logger.warning("begin_anew_impossible reason=%s", error)
            return
        text = f"{why}; the shard has all messages elsewhere: the next start begins an empty log"
        self._broker.fail(FatalError(text, exit_code=ExitCode.IO))

    def fail(self, reason: str, *, disk: bool) -> None:
        """End the process."""
        code = ExitCode.IO if disk else ExitCode.UNEXPECTED
        self._broker.fail(FatalError(reason, exit_code=code))
