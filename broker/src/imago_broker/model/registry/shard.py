"""The leadership of one shard, as values: what the coordinator stores about it.

A `ShardState` is the content of the shard's one state node. It changes only by compare-and-set
on the node's version: whoever wants a change builds the successor of the state that it read, and
the coordinator takes it when nobody was faster. Constructors refuse what cannot be true
(`ValueError`), so that whatever reads a foreign payload has one kind of failure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from imago_wire.errors import WrongError

HISTORY_MAX: Final = 10
"""Elections that a state remembers."""

MEMBERS_MAX: Final = 256
CAUSE_SIZE_MAX: Final = 256
UUID_SIZE_MAX: Final = 64

NOT_CREATED: Final = -1
"""Version of a state whose node does not exist yet."""


class Member(NamedTuple):
    """One life of one data folder."""

    uuid: str
    """Identity of the data folder; survives restarts, dies with the disk."""
    incarnation: int
    """Transaction id of the registration that this life has with the coordinator; never reused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """One change of leadership, kept for people."""

    epoch: int
    leader: str
    """The winner's uuid."""
    at_ms: int
    """Wall clock of the winner, milliseconds since 1970."""
    cause: str
    unclean: bool
    """True: the winner may have lacked acknowledged records, and a person allowed that."""

    def __post_init__(self) -> None:
        _check_number("epoch", self.epoch)
        _check_number("at_ms", self.at_ms)
        _check_text("leader", self.leader, UUID_SIZE_MAX)
        _check_text("cause", self.cause, CAUSE_SIZE_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """Who leads a shard, in which epoch, and who holds every acknowledged record."""

    leader: Member | None = None
    """None: nobody; the members of the in-sync set may propose themselves."""
    epoch: int = 0
    """Number of the last leadership; grows by one with each, also when the same member wins."""
    in_sync: tuple[Member, ...] = ()
    """Members that hold every acknowledged record, sorted by uuid. A leader is always one."""
    former: tuple[Member, ...] = ()
    """Members that left a set which is now smaller than the minimum for replicated
    acknowledgements. Nothing was acknowledged as replicated since, so they hold all of that;
    one of them is elected when every member of the set has lost power. Sorted by uuid."""
    unclean: bool = False
    """Whether the last election was forced by a person who allowed the loss of records."""
    cause: str = "new"
    """Why the state last changed, for people."""
    at_ms: int = 0
    """When the state last changed: wall clock of the writer, milliseconds since 1970."""
    history: tuple[Election, ...] = ()
    """The last elections, newest last."""
    version: int = NOT_CREATED
    """Version of the node that this was read from. No part of the payload."""

    def __post_init__(self) -> None:
        _check_number("epoch", self.epoch)
        _check_number("at_ms", self.at_ms)
        _check_text("cause", self.cause, CAUSE_SIZE_MAX)
        _check_members("in-sync set", self.in_sync)
        _check_members("former members", self.former)
        if len(self.history) > HISTORY_MAX:
            raise WrongError(f"history: {len(self.history)} elections, at most {HISTORY_MAX}")
        if self.leader is not None and self.leader not in self.in_sync:
            raise WrongError(f"leader: {self.leader}, must be in the in-sync set {self.in_sync}")

    def in_sync_member(self, uuid: str) -> Member | None:
        """The in-sync member of this data folder, with the incarnation that was in sync."""
        return next((member for member in self.in_sync if member.uuid == uuid), None)

    def leads(self, member: Member | None) -> bool:
        """Whether this very life of a member is the leader."""
        return member is not None and self.leader == member


def told(state: ShardState) -> tuple[int, int, str, str, str]:
    """What the log says of a state: version, epoch, leader, who is in sync, and the cause."""
    leader = "nobody" if state.leader is None else state.leader.uuid
    in_sync = ",".join(member.uuid for member in state.in_sync)
    return state.version, state.epoch, leader, in_sync, state.cause


def stamped(state: ShardState, wall_ms: int) -> ShardState:
    """The same proposal with the time of the writer, who alone has a clock."""
    history = state.history
    if history and history[-1].at_ms == 0:
        history = (*history[:-1], replace(history[-1], at_ms=wall_ms))
    return replace(state, at_ms=wall_ms, history=history)


def _check_members(name: str, members: tuple[Member, ...]) -> None:
    if len(members) > MEMBERS_MAX:
        raise WrongError(f"{name}: {len(members)} members, at most {MEMBERS_MAX}")
    uuids = [member.uuid for member in members]
    if uuids != sorted(set(uuids)):
        raise WrongError(f"{name}: {uuids}, must be sorted and name each member once")
    for member in members:
        _check_text("member", member.uuid, UUID_SIZE_MAX)
        _check_number("incarnation", member.incarnation)


def _check_number(name: str, value: object) -> None:
    # bool is an int to Python and never one in a payload.
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise WrongError(f"{name}: {value!r:.40}, must be a number from 0 to 2^63 - 1")


def _check_text(name: str, value: object, size_max: int) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= size_max or not value.isprintable():
        raise WrongError(f"{name}: {value!r:.80}, must be 1 to {size_max} printable characters")
