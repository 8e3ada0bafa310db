"""A member's state machine, told events by a test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from imago_broker.core.shard import effects as fx
from imago_broker.core.shard import events as ev
from imago_broker.core.shard.member import ShardMachine
from imago_broker.core.shard.values import Log, MemberInfo, ShardLimits
from imago_broker.model.registry.shard import Member, ShardState

if TYPE_CHECKING:
    from imago_broker.core.shard.effects import Effect

ME, OTHER = Member("a", 11), Member("b", 12)
BOTH = frozenset("ab")
LIVE = {"a": MemberInfo(11, 0), "b": MemberInfo(12, 1)}
ALONE = {"a": MemberInfo(11, 0)}
LOG = Log(0, 100, ((1, 0),))


class Told:
    """A machine, and the last effects."""

    def __init__(self, **settings: Any) -> None:
        self.machine = ShardMachine("a", ShardLimits(), **settings)
        self.effects: list[Effect] = []
        self.now_ms = 0

    def tell(self, event: ev.Event) -> list[Effect]:
        self.effects = self.machine.handle(event, self.now_ms)
        return self.effects

    def only(self, kind: type) -> Any:
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        assert len(found) == 1, self.effects
        return found[0]

    def sees(self, shard: ShardState, live: dict[str, MemberInfo], ticket: int = 0) -> None:
        self.tell(ev.ViewSeen(shard, live, BOTH, LOG, ticket))

    def registered(self, shard: ShardState, live: dict[str, MemberInfo]) -> None:
        """Register and see; asked again, see the same."""
        self.tell(ev.Registered(ME))
        self.sees(shard, live, self.only(fx.ReadView).ticket)

    def leading(self) -> None:
        """Lead in epoch 5, with the other in sync."""
        self.registered(state(OTHER, 4, ME, OTHER), ALONE)
        self.sees(state(OTHER, 4, ME, OTHER), ALONE, self.only(fx.ReadView).ticket)
        proposed = self.only(fx.Propose)
        self.tell(ev.ProposalDone(proposed.ticket, replace(proposed.shard, version=8)))
        self.tell(ev.Led(5, LOG, 100, 100))
        self.tell(ev.LeaseRenewed(4000))


def state(leader: Member | None, epoch: int, *in_sync: Member, version: int = 7) -> ShardState:
    return ShardState(leader=leader, epoch=epoch, in_sync=in_sync, version=version)


def follower_joins(told: Told, end: int = 100) -> None:
    assert told.machine.fetch_problem(OTHER, 5, end, 1, LOG, told.now_ms) is None
    told.machine.acked(OTHER, 5, end, end, told.now_ms)


def handing_over() -> Told:
    told = Told()
    told.registered(state(ME, 5, ME, OTHER), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    told.tell(ev.LeaseRenewed(4000))
    follower_joins(told)
    return told
