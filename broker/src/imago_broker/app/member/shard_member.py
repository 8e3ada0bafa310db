"""The broker as a member of its shard: how it stands, and what administrators may ask of it."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.core.shard.values import ShardLimits
from imago_broker.model.registry.cluster import RegistryConnection, Role
from imago_broker.model.registry.shard_status import LocalShardStatus
from imago_broker.ports import ShardRefusedError
from imago_broker.replication.counters import ReplicationCounters
from imago_broker.replication.failures import Failures
from imago_broker.replication.links.addresses import Addresses
from imago_broker.replication.links.member import MemberIdentity
from imago_broker.replication.parts import ShardParts
from imago_broker.replication.repair import Repairs
from imago_broker.replication.shell import ShardShell
from imago_broker.replication.status import followers
from imago_broker.service.serving_rules import NO_LEASE
from imago_log.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from imago_broker.config import BrokerConfig
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.ports import Clock, Coordinator
    from imago_broker.replication.links.port import ReplicationPort
    from imago_broker.replication.parts import Host
    from imago_broker.service.puts.gate import ShardGate
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.role import RoleState

logger = logging.getLogger(__name__)

PROBLEM_CHARS_MAX = 1000
"""Of what a registration says of a member's problem."""
SETTLE_SECONDS_MAX = 10.0
"""How long a start waits for a role; without one the broker is up and says so."""


def is_member(config: BrokerConfig) -> bool:
    """Whether the shard keeps its leadership in a registry, and may have other members."""
    return config.zookeeper.connect != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShard:
    """The shard as this broker has it: who it is there, its messages, and who may put some."""

    uuid: str
    messages: MessageService
    gate: ShardGate
    role: RoleState
    clock: Clock
    record: Callable[[], BrokerRecord]
    """How this broker announces itself."""


class ShardMember:
    """Takes part from `start` to `leave`; `imago_broker.ports.ShardControl` for administrators."""

    def __init__(
        self,
        config: BrokerConfig,
        local: LocalShard,
        *,
        coordinator: Coordinator,
        port: ReplicationPort,
        host: Host,
    ) -> None:
        """`host`: who does what a role means."""
        store, clock = local.messages.store, local.clock
        self.shell: ShardShell | None = None
        self.counters = ReplicationCounters()
        self.failures = Failures(Path(config.broker.data_dir) / "failures")
        self.repairs = Repairs(store.damaged_ranges, self._heal, lambda: store.high_watermark)
        self._config = config
        self._store = store
        self._role = local.role
        self._clock = clock
        self._port = port
        self._host = host
        self._coordinator = coordinator
        self._parts = ShardParts(
            identity=MemberIdentity(
                shard=config.broker.shard,
                uuid=local.uuid,
                view=coordinator.view,
                incarnation=self._incarnation,
            ),
            registry=coordinator,
            shard_states=coordinator.shard_states,
            store=store,
            messages=local.messages,
            gate=local.gate,
            role=local.role,
            port=port,
            refused=port.refused,
            repairs=self.repairs,
            addresses=Addresses(config.replication.peer_networks, now_ms=clock.monotonic_ms),
            failures=self.failures,
            counters=self.counters,
            record=local.record,
            clock=clock,
            rng=random.Random(),  # noqa: S311  spreads the members' attempts
            catch_up_bytes_per_second=config.replication.catch_up_bytes_per_second_max,
        )
        self._settled = asyncio.Event()
        self._joined = False
        """Whether it has led or was in sync since its start, as far as anybody has asked."""

    async def start(self) -> None:
        """Take part in the shard; our registration stands."""
        config = self._config
        limits = ShardLimits(
            min_in_sync=config.min_in_sync,
            lag_ms_max=config.replication.lag_ms_max,
            lost_ms_max=config.replication.lost_ms_max,
        )
        self.shell = ShardShell(self._parts, limits, self._host)
        self._open(self.shell)
        self._role.on_change.append(lambda _: self._settled.set())
        self.shell.start()
        try:
            async with asyncio.timeout(SETTLE_SECONDS_MAX):
                await self._settled.wait()
        except TimeoutError:
            logger.warning("role_unsettled seconds=%g", SETTLE_SECONDS_MAX)

    def apply(self, config: BrokerConfig) -> None:
        """Put changed settings in force."""
        self._config = config
        if self.shell is not None:
            machine = self.shell.machine
            machine.limits = replace(machine.limits, min_in_sync=config.min_in_sync)
            self._open(self.shell)

    def _open(self, shell: ShardShell) -> None:
        """Let others copy the log, where the configuration says so; what is open stays open."""
        if not self._config.replicates or self._port.serves:
            return
        try:
            self._port.bind()
        except OSError as error:
            # Given again it is tried again: who leads alone goes on meanwhile.
            logger.error("replication_closed reason=%s", error.strerror)  # noqa: TRY400
            return
        self._port.start(shell)

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

    def shard_status(self) -> LocalShardStatus:
        """Return how things stand in the shard."""
        problems = self.problems()
        if self.shell is None:
            return LocalShardStatus(
                role=Role.ELECTING, epoch=0, settled=False, reason="it is starting"
            )
        role = self._role.current
        return LocalShardStatus(
            role=role.role,
            epoch=role.epoch,
            settled=not problems,
            reason="; ".join(problems),
            leader_end=self.shell.leader_end,
            followers=followers(
                self.shell,
                self._clock.monotonic_ms(),
                self._store.damaged_ranges(),
            ),
        )

    async def handover(self, target: str | None, request_id: str) -> None:
        """Give leadership away; ShardRefusedError when that cannot be, and we lead on."""
        await self._asked(self._shell().hand_over(target, request_id))

    async def elect(self, request_id: str, *, allow_data_loss: bool) -> None:
        """Lead a shard without leader; ShardRefusedError when that may not be."""
        await self._asked(self._shell().elect(request_id, allow_data_loss=allow_data_loss))

    async def _asked(self, asked: Coroutine[Any, Any, tuple[bool, str]]) -> None:
        done, text = await asked
        if not done:
            raise ShardRefusedError(text)

    def _shell(self) -> ShardShell:
        if self.shell is None:
            raise ShardRefusedError("this broker is starting")
        return self.shell

    def may_force(self) -> bool:
        """Whether the log's oldest files may go for want of room: no other member has any."""
        return self.shell is not None and self.shell.troubles.may_force()

    @property
    def problem(self) -> str:
        """What keeps this member from its part for good, as others see it."""
        last = self.failures.last
        if last is None or not last.lasts:
            return ""
        text = str(last)[:PROBLEM_CHARS_MAX]
        return "".join(letter if letter.isprintable() else " " for letter in text)

    def problems(self) -> list[str]:
        """Return why the member is not ready for its part."""
        if self.problem:
            needed = self.shell.needed_for if self.shell is not None else ""
            kept = f"; its log is kept: {needed}" if needed else ""
            return [f"{self.problem}{kept}"]
        role = self._role.current
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
        role = self._role.current
        whole = role.leads or (self.shell is not None and self.shell.in_sync)
        self._joined = self._joined or whole
        if self.problem or (role.role is Role.SLAVE and not self._joined):
            return self.problems()
        return []

    def behind(self) -> str:
        """Return why this member may lack what its shard has confirmed; "": it has all.

        Anybody may be told: no address is in it.
        In a shard without leader that is what its in-sync members have: nobody confirms more.
        """
        shell, role = self.shell, self._role.current
        if shell is None:
            return "this broker is starting"
        elects = role.role is Role.ELECTING
        if role.leads or elects:
            connected = self._coordinator.state is RegistryConnection.CONNECTED
            if not (self._parts.gate.lease_holds() if role.leads else connected):
                return NO_LEASE
        following = shell.executor.following
        hears = following is not None and following.agreed
        if role.leads or (shell.in_sync and (elects or hears)):
            return ""
        return "this broker's copy of the log is not in sync"

    def _heal(self, offset: int, data: bytes) -> int:
        try:
            return self._store.heal(offset, data)
        except StoreError as error:
            logger.warning("heal_failed offset=%d reason=%s", offset, error)
            return 0

    def _incarnation(self) -> int:
        registered = self._coordinator.registered
        return 0 if registered is None else registered.incarnation
