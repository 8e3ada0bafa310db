"""The parts under the replication shell, and its demands on the broker around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from imago_broker.replication.links.member import ThisMember

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.ports import Clock, Registry, ShardStates
    from imago_broker.replication.counters import ReplicationCounters
    from imago_broker.replication.failures import Failures
    from imago_broker.replication.links.addresses import Addresses
    from imago_broker.replication.links.member import MemberIdentity
    from imago_broker.replication.links.port import RefusedPeers, ReplicationPort
    from imago_broker.replication.repair import Repairs
    from imago_broker.service.puts.gate import ShardGate
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.role import RoleState
    from imago_log.store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardParts:
    """The parts of one broker that take part in replication."""

    identity: MemberIdentity
    registry: Registry
    shard_states: ShardStates
    store: MessageStore
    messages: MessageService
    gate: ShardGate
    role: RoleState
    port: ReplicationPort
    refused: RefusedPeers
    addresses: Addresses
    failures: Failures
    repairs: Repairs
    counters: ReplicationCounters
    record: Callable[[], BrokerRecord]
    """How this broker announces itself at the moment."""
    clock: Clock
    rng: random.Random
    catch_up_bytes_per_second: int = 0

    @property
    def this(self) -> ThisMember:
        """What connections to other members have to do with."""
        return ThisMember(
            identity=self.identity, store=self.store, counters=self.counters, clock=self.clock
        )


class Host(Protocol):
    """The broker, as far as its role concerns it."""

    def lead(self, epoch: int) -> None:
        """Begin to serve as master: puts are taken from now on."""
        ...

    def hold(self) -> None:
        """Let new requests wait: leadership may be with another member soon."""
        ...

    def release(self) -> None:
        """Serve what waits: this member is the master, or is it still."""
        ...

    def step_down(self, why: str) -> None:
        """Serve as master no more."""
        ...

    def follow(self, leader: BrokerRecord) -> None:
        """Another member leads, and this is where it is reached."""
        ...

    def readable(self) -> None:
        """Readers of this member, which follows, see more than before."""
        ...

    def reset_member(self, why: str) -> None:
        """End the process; its next start sets the data folder aside and is a new member."""
        ...

    def fail(self, reason: str, *, disk: bool) -> None:
        """End the process: the disk refuses, or a bug."""
        ...
