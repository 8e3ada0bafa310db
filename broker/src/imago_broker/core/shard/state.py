"""The state of one member, and one step under way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from imago_broker.core.shard.effects import Propose, ReadView
from imago_broker.core.shard.election import Choice, Electable, Patience, choose, electable
from imago_broker.core.shard.in_sync import joinable, joiner, waited_for
from imago_broker.core.shard.leader_lease import leased
from imago_broker.core.shard.reconcile import CutBack, reconcile, takes, valid_fetch
from imago_broker.core.shard.values import (
    EMPTY,
    FollowerProgress,
    Live,
    Log,
    MachineRole,
    MemberInfo,
    ShardLimits,
    ShardProgress,
)
from imago_broker.model.registry.shard import Member, ShardState

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.core.shard.effects import AcceptPuts, Effect, HoldPuts


@dataclass(frozen=True, slots=True)
class HandoverState:
    """Leadership on its way to another member."""

    request: str | None
    """None: begun by an orderly stop, nobody waits for an answer."""
    wanted: str | None
    """Uuid of the member that is to lead; None: the best."""
    began_ms: int
    target: Member | None = None
    """Chosen when the handover begins to run."""


@dataclass(frozen=True, slots=True)
class Forced:
    """An election that a person forced on this member."""

    request: str


@dataclass(frozen=True, slots=True)
class Proposed:
    """A change of the shard's state that the coordinator has not yet answered for certain."""

    shard: ShardState
    ticket: int
    in_doubt: bool = False
    """Whether the answer was lost; a fresh view decides."""


@dataclass(frozen=True, slots=True)
class Vacancy:
    """A time in which we know of no live leader."""

    since_ms: int
    waits_for: str = ""
    """The reason for which nobody is elected, as last noted."""
    patience: Patience | None = None
    """Whom we let come first."""
    patience_ms: int = 0
    """Since when it is these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """What a leader knows and has told in its epoch; each epoch begins with a new one."""

    led: bool = False
    """Whether the epoch is on disk; no put is taken before."""
    led_ms: int = 0
    epoch_start: int = 0
    waits: frozenset[Member] | None = None
    """Whom the high watermark waits for, as last told."""
    puts: AcceptPuts | HoldPuts | None = None
    """Which puts are taken, as last told."""
    admitted: Member | None = None
    """A follower that is waited for so that it can join the in-sync set."""
    admission_ms: int = 0
    """When one was admitted, or given up, last: the next one has to wait for a while; 0: never."""
    looked_ms: int = 0
    """When the in-sync set was looked after last; 0: not yet."""
    slept: bool = False
    """Whether so much time had passed then that nobody was judged by it."""
    handover: HandoverState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that one member knows and intends. Nothing in it is shared with another step."""

    uuid: str
    epoch_seen: int = 0
    """Highest epoch promised, as it is on disk."""
    unclean: bool = False
    """Whether our log may lack acknowledged records, as it is on disk."""
    role: MachineRole = MachineRole.OUT
    member: Member | None = None
    """Our life in the coordinator; None while we are not registered."""
    suspended: bool = False
    lease_until_ms: int = 0

    # What the coordinator holds, as last heard.
    shard: ShardState = field(default_factory=ShardState)
    live: Live = field(default_factory=lambda: MappingProxyType({}))
    known: frozenset[str] = frozenset()
    log: Log = EMPTY
    """Our own log at the last view; it moves on while we follow or lead."""
    viewed: bool = False
    """Whether there was a view since we registered."""
    fresh_version: int | None = None
    """Version of the state in the last fresh view; elections are decided on no other."""
    ticket: int = 0
    """Number of the last question to the coordinator. Answers to earlier ones are old."""
    question: int = 0
    """Ticket of the fresh view that is on its way; 0: none is."""
    question_version: int = 0
    """Version of the state that we knew when we asked."""
    epoch_heard: int = 0
    """Highest epoch that a peer has spoken of. Anybody may: see `confirmed_epoch`."""
    epoch_own: int = 0
    """Highest epoch that our own disk has refused to go below."""

    proposed: Proposed | None = None
    retry_ms: int = 0
    """No proposal before this."""

    vacancy: Vacancy | None = None
    """While electing."""
    forced: Forced | None = None
    yields_ms: int = 0
    """Until then others lead, since our disk had no room to note an epoch."""

    # While following or leading.
    epoch: int = 0
    """Epoch of the leadership we are in."""
    following: Member | None = None
    reconciled: bool = False
    """Whether our log is a prefix of that of the leader of `epoch`. No data is taken before."""
    leadership: LeaderState = LeaderState()
    """While leading."""
    stopping_ms: int | None = None
    """Since when an orderly stop is under way."""
    stopped: bool = False


def confirmed_epoch(state: State) -> int:
    """Return the highest epoch that peers have spoken of and the coordinator knows of.

    Members promise themselves to epochs that it gave, and register with what they have promised.
    So a higher one is known to nobody; where the coordinator has lost its memory, registrations
    still tell what was promised before.
    """
    return min(state.epoch_heard, max(registered_epoch(state), state.shard.epoch, state.epoch_own))


def registered_epoch(state: State) -> int:
    """Return the highest epoch that a registered member had promised itself to."""
    return max((info.epoch_seen for info in state.live.values()), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The decisions that the protocol's safety hangs on, each a function of values."""

    reconcile: Callable[[Log, Log], CutBack] = reconcile
    valid_fetch: Callable[[Log, int, int], bool] = valid_fetch
    takes: Callable[[int, int], bool] = takes
    electable: Callable[[Member, MemberInfo | None], bool] = electable
    joiner: Callable[[Member, FollowerProgress, Live], Member | None] = joiner
    joinable: Callable[[FollowerProgress, ShardProgress, int], bool] = joinable
    waited_for: Callable[
        [ShardState, ShardState | None, Member | None, Member], frozenset[Member]
    ] = waited_for
    choose: Callable[[ShardState, Live, frozenset[str], Electable], Choice] = choose
    leased: Callable[[int, int], bool] = leased


RULES = Rules()


class Transition:
    """One step under way: the state and the effects so far. Lives for one step only."""

    __slots__ = ("effects", "limits", "now_ms", "rules", "state")

    def __init__(self, state: State, now_ms: int, limits: ShardLimits, rules: Rules) -> None:
        self.state = state
        self.now_ms = now_ms
        self.limits = limits
        self.rules = rules
        self.effects: list[Effect] = []

    def set(self, **changes: Any) -> None:
        """Change fields of the state."""
        self.state = replace(self.state, **changes)

    def set_leading(self, **changes: Any) -> None:
        """Change fields of our leadership."""
        self.set(leadership=replace(self.state.leadership, **changes))

    def do(self, *effects: Effect) -> None:
        """Add effects, to be carried out in this order."""
        self.effects += effects

    def ask(self) -> None:
        """Have a fresh view read, unless one is on its way."""
        if not self.state.question:
            ticket = self.state.ticket + 1
            self.set(ticket=ticket, question=ticket, question_version=self.state.shard.version)
            self.do(ReadView(ticket))

    def ask_again(self) -> None:
        """Have a fresh view read that begins now, whatever is on its way."""
        self.set(question=0)
        self.ask()

    def may_propose(self) -> bool:
        """Whether a change of the shard's state may be tried now."""
        state = self.state
        return (
            state.member is not None
            and not state.suspended
            and state.proposed is None
            and self.now_ms >= state.retry_ms
        )

    def propose(self, shard: ShardState) -> None:
        """Try to change the shard's state from the one that we know."""
        ticket = self.state.ticket + 1
        self.set(ticket=ticket, proposed=Proposed(shard, ticket))
        self.do(Propose(shard, self.state.shard.version, ticket))
