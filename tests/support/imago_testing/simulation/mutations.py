"""Bugs that others had, each planted by replacing one decision of the protocol.

The checker has to find every one of them: a simulation that finds no planted bug proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imago_broker.core.shard import election, in_sync, reconcile
from imago_broker.core.shard.state import RULES, Rules
from imago_broker.model.registry.shard import Member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.core.shard.election import Choice, Electable
    from imago_broker.core.shard.values import (
        FollowerProgress,
        Live,
        Log,
        MemberInfo,
        ShardProgress,
    )
    from imago_broker.model.registry.shard import ShardState


POWER = {"power": 6, "kill": 3, "reset_connection": 3, "one_way": 2, "pause": 2, "power_all": 1}
"""Faults for bugs that show when memory is lost at a bad moment."""
SLOW_POWER = {"power": 5, "slow": 3, "one_way": 2}
POWER_ONLY = {"power": 4, "power_all": 3}
TEAR = {"tear": 4, "kill": 2}
DAMAGE = {"damage": 4, "kill": 4, "expire": 2}
POWER_OR_KILL = {"power": 4, "kill": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A planted bug."""

    name: str
    what: str
    rules: Rules
    seeds_max: int = 300
    """Within so many seeds it must be found."""
    weights: Mapping[str, int] | None = None
    """Kinds of faults that bring it to light; None: all."""


def _end_only(own: Log, theirs: Log) -> reconcile.CutBack:
    """The follower compares ends, no epochs: what differs below stays."""
    end = min(own.end, theirs.end)
    if end < max(own.start, theirs.start):
        return reconcile.CutBack(theirs.start, 0, reset=True)
    return reconcile.CutBack(end, reconcile.epoch_before(theirs, end))


def _one_step(own: Log, theirs: Log) -> reconcile.CutBack:
    """The follower asks once for the end of its last epoch, and takes the answer for one about
    that epoch although the leader never knew it."""
    asked = reconcile.last_epoch(own)
    known = [pair for pair in reconcile.written_epochs(theirs) if pair[0] <= asked]
    end = min(own.end, reconcile.epoch_end(theirs, known[-1][0]) if known else own.end)
    if end < max(own.start, theirs.start):
        return reconcile.CutBack(theirs.start, 0, reset=True)
    return reconcile.CutBack(end, reconcile.epoch_before(theirs, end))


def _below_watermark(own: Log, theirs: Log) -> reconcile.CutBack:
    """The follower trusts nothing above its own high watermark, which may be old."""
    right = reconcile.reconcile(own, theirs)
    end = max(own.start, min(right.end, own.high_watermark))
    return right if right.reset else reconcile.CutBack(end, reconcile.epoch_before(own, end))


def _takes_all(_: int, __: int) -> bool:
    """Frames of any epoch count."""
    return True


def _always(_: Member, info: MemberInfo | None) -> bool:
    """A member that lost its memory is as good as before."""
    return info is not None


def _latest_life(member: Member, follower: FollowerProgress, live: Live) -> Member | None:
    """The set names whichever life is registered, for what an earlier one held."""
    info = live.get(member.uuid)
    if info is None or follower.left_ms is not None:
        return None
    return Member(member.uuid, info.incarnation)


def _lease_for_ever(_: int, __: int) -> bool:
    """A suspended leader goes on."""
    return True


def _stored_less(
    shard: ShardState, proposal: ShardState | None, admitted: Member | None, me: Member
) -> frozenset[Member]:
    """A shrink that is proposed counts as done."""
    counted = proposal or shard
    return in_sync.waited_for(counted, None, admitted, me)


def _nearly(follower: FollowerProgress, progress: ShardProgress, epoch_start: int) -> bool:
    """Whoever holds the earlier epochs joins, wherever the high watermark is."""
    return follower.end >= min(progress.high_watermark, epoch_start)


def _without_former(
    shard: ShardState, live: Live, known: frozenset[str], may_lead: Electable
) -> Choice:
    """When all of the set lost power, only the set is looked at."""
    return election.choose(replace(shard, former=()), live, known, may_lead)


def _first_come(
    shard: ShardState, live: Live, known: frozenset[str], may_lead: Electable
) -> Choice:
    """When all of the set lost power, whoever is there first leads."""
    choice = election.choose(shard, live, known, may_lead)
    there = tuple(sorted(m.uuid for m in shard.in_sync if m.uuid in live))
    return choice if choice.candidates else election.Choice(there, "first come")


def _uncompared(
    shard: ShardState, live: Live, known: frozenset[str], may_lead: Electable
) -> Choice:
    """Of members that are equal by the coordinator, the one that came back first leads."""
    choice = election.choose(shard, live, known, may_lead)
    return choice._replace(
        candidates=tuple(sorted(choice.candidates, key=lambda uuid: live[uuid].incarnation)),
        patient={},
    )


def _damage_blind(
    shard: ShardState, live: Live, known: frozenset[str], may_lead: Electable
) -> Choice:
    """Damage is no matter of elections."""
    told = {uuid: info._replace(damaged=False) for uuid, info in live.items()}
    return election.choose(shard, told, known, may_lead)


MUTATIONS = (
    Mutation(
        name="kip-101",
        what="logs are compared by their ends, not by epochs",
        rules=replace(RULES, reconcile=_end_only),
    ),
    Mutation(
        name="truncate-by-high-watermark",
        what="a follower cuts its log to its own high watermark",
        rules=replace(RULES, reconcile=_below_watermark),
    ),
    Mutation(
        name="kip-279",
        what="one question about the last epoch, no walk back",
        rules=replace(RULES, reconcile=_one_step, valid_fetch=lambda *_: True),
    ),
    Mutation(
        name="kip-320",
        what="frames of another epoch count",
        rules=replace(RULES, takes=_takes_all),
        seeds_max=600,
    ),
    Mutation(
        name="kip-903",
        what="a later life is in sync for what an earlier one held",
        rules=replace(RULES, joiner=_latest_life),
        weights=SLOW_POWER,
        seeds_max=600,
    ),
    Mutation(
        name="kip-966",
        what="an in-sync member that lost power may lead, and logs are not compared",
        rules=replace(RULES, electable=_always, choose=_uncompared),
        weights=POWER,
    ),
    Mutation(
        name="acknowledge-while-suspended",
        what="the lease does not end",
        rules=replace(RULES, leased=_lease_for_ever),
    ),
    Mutation(
        name="shrink-before-stored",
        what="the leader waits for fewer before the coordinator knows",
        rules=replace(RULES, waited_for=_stored_less),
    ),
    Mutation(
        name="join-behind",
        what="a follower joins below the high watermark",
        rules=replace(RULES, joinable=_nearly),
    ),
    Mutation(
        name="without-former",
        what="members that left a set that became too small are forgotten",
        rules=replace(RULES, choose=_without_former),
        weights=POWER_OR_KILL,
        seeds_max=600,
    ),
    Mutation(
        name="first-come",
        what="after a loss of power nobody is waited for",
        rules=replace(RULES, choose=_first_come),
        weights=POWER_ONLY,
        seeds_max=600,
    ),
    Mutation(
        name="uncompared",
        what="after a crash of all members nobody compares the logs",
        rules=replace(RULES, choose=_uncompared),
        weights=TEAR,
    ),
    Mutation(
        name="damage-blind",
        what="a member with damage is elected while a whole one is there",
        rules=replace(RULES, choose=_damage_blind),
        weights=DAMAGE,
    ),
)
