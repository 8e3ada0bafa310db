"""What keeps a broker from serving, in words: asked by probes, by administrators and by Prometheus.

Each is read off what requests themselves are checked with, at the moment of the question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.model.registry.cluster import RegistryConnection, Role
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.serving_rules import Asks

if TYPE_CHECKING:
    import asyncio

    from imago_broker.app.member.shard_member import ShardMember
    from imago_broker.config import BrokerConfig
    from imago_broker.errors import FatalError
    from imago_broker.ports import Registry
    from imago_broker.service.puts.gate import ShardGate
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.serving_rules import ServingRules
    from imago_log.results import StoreHealth

NO_MASTER = "the shard has no master that this broker knows of"


class HinderedState(Protocol):
    """What changes of a broker while it runs, as far as it keeps clients from being served."""

    config: BrokerConfig
    gate: ShardGate | None
    messages: MessageService
    serving: bool
    serving_rules: ServingRules
    failed: asyncio.Future[FatalError]

    @property
    def health(self) -> StoreHealth: ...


class Hindrances(NamedTuple):
    """Why clients of the shard are refused now, as this broker knows; empty: they are served."""

    puts: list[str]
    gets: list[str]


def problems(state: HinderedState, member: ShardMember | None) -> list[str]:
    """Return why clients should not be sent here; empty when they should.

    A broker that takes no messages for now still has routes and messages to read, which may be
    nowhere else: a full disk, or a registry that is away, concerns all members alike.
    """
    found = []
    if not state.serving:
        found.append("the broker is starting or stopping")
    if state.failed.done():
        found.append(f"the broker has failed: {state.failed.result()}")
    if member is not None:
        found += member.unready()
    return found


def write_problems(
    state: HinderedState, registry: Registry, *, level: Acknowledgement | None = None
) -> list[str]:
    """Return why messages may be refused here although clients are sent here.

    Not that this member does not lead: its shard takes them elsewhere. `level`: asks for messages
    of this level alone.
    """
    found = []
    health, gate = state.health, state.gate
    if not health.writable:
        found.append(f"the disk is full: {health.disk_used_ratio:.0%} used")
    if registry.state is not RegistryConnection.CONNECTED:
        found.append(f"the registry is {registry.state.value}")
    if gate is not None and gate.short and (level is None or level.needs_replicas):
        found.append("too few members are in sync for messages that wait for them")
    return found


def refused(state: HinderedState, registry: Registry, member: ShardMember | None) -> Hindrances:
    """Return why puts and gets of the shard are refused; what another member serves is not."""
    found, rules = problems(state, member), state.serving_rules
    if rules.role.current.role is Role.ELECTING:
        return Hindrances([*found, NO_MASTER], [*found, NO_MASTER])
    hindered = write_problems(
        state, registry, level=Acknowledgement(state.config.acknowledgement_level)
    )
    if found or not rules.leads:  # whether its master answers is the master's to say
        return Hindrances([*found, *hindered], found)
    unread, unchanged = rules.refusal(Asks.MESSAGES), rules.refusal(Asks.CHANGE)
    hindered += [unchanged] if unchanged else []
    status = state.messages.admission()
    # A producer that is told that the broker is busy tries again, and is served.
    if status not in (None, PutStatus.BUSY) and not hindered:
        hindered.append(f"every put is answered {status.value}")
    return Hindrances(hindered, [unread] if unread else [])
