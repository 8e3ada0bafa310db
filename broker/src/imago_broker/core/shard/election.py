"""Who may lead a shard that has no live leader.

Every in-sync member holds every acknowledged record, so any of them may lead, as long as it
still holds what it held: the same life, or a later one that did not lose its page cache. Where
none is left, what is left is compared, and only when everybody who may hold something is there.

A later life is believed, and looked at all the same: what it says of its log is all that tells a
torn file from a whole one. So lives that went on come first, then the longest log of the newest
epoch, and a log with damage comes after all whole ones. Who may come second gives the others some
time to be there; when it is over, whoever is there leads, for a member may be gone for good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.core.shard.in_sync import former_after
from imago_broker.core.shard.values import Live, MemberInfo
from imago_broker.model.registry.shard import HISTORY_MAX, NOT_CREATED, Election, Member, ShardState

if TYPE_CHECKING:
    from collections.abc import Iterable

ROUNDS_MAX = 4
"""So many times `Limits.compare_ms_max`, and nobody is waited for any more, whoever comes."""

Electable = Callable[[Member, MemberInfo | None], bool]
"""Whether a member, by the set and by its registration now, may lead."""


class Patience(NamedTuple):
    """Who may be a better leader than a candidate."""

    better: tuple[str, ...]
    """They are there, and are: each has the time to lead, and to wait for others before."""
    absent: tuple[str, ...]
    """They may be, when they are back."""

    def due_ms(self, since_ms: int, vacant_ms: int, compare_ms_max: int) -> int:
        """When it is over: `since_ms` is when it took this form, `vacant_ms` when it began."""
        rounds = 2 if self.better else 1
        return min(since_ms + rounds * compare_ms_max, vacant_ms + ROUNDS_MAX * compare_ms_max)


class Choice(NamedTuple):
    """Who may propose itself, the best first; nobody, and `cause` says who is waited for."""

    candidates: tuple[str, ...]
    cause: str
    patient: Mapping[str, Patience] = MappingProxyType({})
    """Candidates that let others come first for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionOutcome:
    """What an election decides, apart from who stays in the in-sync set."""

    epoch: int
    cause: str
    unclean: bool = False
    """A person allowed the loss of records."""


def leader_lives(shard: ShardState, live: Live) -> bool:
    """Whether the registration with which the leader was elected still stands."""
    return shard.leader is not None and is_live(shard.leader, live)


def is_live(member: Member, live: Live) -> bool:
    """Whether this very life of a member is registered."""
    info = live.get(member.uuid)
    return info is not None and info.incarnation == member.incarnation


def electable(member: Member, info: MemberInfo | None) -> bool:
    """Whether a member of the in-sync set still holds what it held when it was in sync."""
    if info is None:
        return False
    return info.incarnation == member.incarnation or not info.unclean


def outdated(shard: ShardState, live: Live) -> bool:
    """Whether a log is of a later epoch than the state: then its in-sync set is of the past."""
    return any(info.log_epoch > shard.epoch for info in live.values())


def choose(
    shard: ShardState, live: Live, known: frozenset[str], may_lead: Electable = electable
) -> Choice:
    """Return who may propose itself as leader of a shard that has no live one."""
    if not shard.in_sync or outdated(shard, live):
        # Without its state, or with an older one than the logs, all that counts is the logs.
        why = "first election" if shard.version == NOT_CREATED else "the state does not fit"
        busy = sorted(uuid for uuid, info in live.items() if not info.standing)
        if busy:
            # They lead or follow, or did a moment ago: what they said of their logs is of the past.
            return Choice((), f"waiting for {', '.join(busy)} to see that the state is gone")
        return _highest(known | live.keys(), live, why)
    fit = [member for member in shard.in_sync if may_lead(member, live.get(member.uuid))]
    if fit:
        fit.sort(key=lambda member: (*_rank(member, live), live[member.uuid].incarnation))
        gone = "no leader" if shard.leader is None else "leader gone"
        return Choice(tuple(member.uuid for member in fit), gone, _patient(shard, fit, live))
    former = [member.uuid for member in shard.former]
    needed = {member.uuid for member in shard.in_sync}
    if not any(may_lead(member, live.get(member.uuid)) for member in shard.former):
        needed.update(former)
    return _highest(needed, live, "all in-sync members lost power", also=former)


def _rank(member: Member, live: Live) -> tuple[bool, bool, int, int]:
    """How a member of the set compares with others; the least is the best."""
    info = live[member.uuid]
    if is_live(member, live):
        return (info.damaged, False, 0, 0)  # what it said of its log is of the past
    return (info.damaged, True, -info.log_epoch, -info.log_end)


def _patient(shard: ShardState, fit: list[Member], live: Live) -> dict[str, Patience]:
    """Which candidates have to wait, and for whom."""
    absent = tuple(member.uuid for member in shard.in_sync if member.uuid not in live)
    found = {}
    for member in fit:
        own = _rank(member, live)
        if own[:2] == (False, False):
            continue
        better = tuple(other.uuid for other in fit if _rank(other, live) < own)
        if absent or better:
            found[member.uuid] = Patience(better, absent)
    return found


def _height(uuid: str, live: Live) -> tuple[int, int, bool, str]:
    info = live[uuid]
    return (info.log_epoch, info.log_end, not info.damaged, uuid)


def _highest(needed: Iterable[str], live: Live, why: str, also: Iterable[str] = ()) -> Choice:
    """The member with the highest log, as soon as all that are needed are there."""
    missing = sorted(uuid for uuid in needed if uuid not in live)
    if missing:
        return Choice((), f"waiting for {', '.join(missing)}")
    there = {*needed, *(uuid for uuid in also if uuid in live)}
    best = max(there, key=lambda uuid: _height(uuid, live))
    return Choice((best,), why)


def highest_live(live: Live) -> str | None:
    """The live member with the highest log, of whatever standing."""
    return max(live, key=lambda uuid: _height(uuid, live), default=None)


def elected(
    shard: ShardState,
    me: Member,
    live: Live,
    outcome: ElectionOutcome,
    *,
    min_in_sync: int,
    may_lead: Electable = electable,
) -> ShardState:
    """Return the state in which `me` leads.

    In-sync members that are not there, or that lost their page cache, leave the set. One that
    was restarted stays under its old incarnation, until it has joined under the new one. Of a set
    of the past nobody is known to hold what the highest log holds.
    """
    kept = [
        member
        for member in shard.in_sync
        if member.uuid != me.uuid and may_lead(member, live.get(member.uuid))
    ]
    alone = outcome.unclean or outdated(shard, live)
    in_sync = (me,) if alone else tuple(sorted((me, *kept)))
    former = () if outcome.unclean else former_after(shard, in_sync, min_in_sync)
    return replace(
        led_by(shard, me, outcome.epoch, outcome.cause, unclean=outcome.unclean, in_sync=in_sync),
        former=former,
    )


def led_by(
    shard: ShardState,
    leader: Member,
    epoch: int,
    cause: str,
    *,
    in_sync: tuple[Member, ...],
    unclean: bool = False,
) -> ShardState:
    """Return the state with another leadership, which its history remembers."""
    entry = Election(epoch=epoch, leader=leader.uuid, at_ms=0, cause=cause, unclean=unclean)
    return replace(
        shard,
        leader=leader,
        epoch=epoch,
        in_sync=in_sync,
        unclean=unclean,
        cause=cause,
        at_ms=0,
        history=(*shard.history, entry)[-HISTORY_MAX:],
    )
