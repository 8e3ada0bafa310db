"""The in-sync set: who is in it, who joins, who leaves, and whom the leader waits for.

The set is stored before fewer members are waited for, and more are waited for before it is
stored. So whatever the coordinator holds, the leader waits for all of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.core.shard.values import FollowerProgress, Live, ShardLimits, ShardProgress
    from imago_broker.model.registry.shard import Member, ShardState


def former_after(
    shard: ShardState, in_sync: tuple[Member, ...], min_in_sync: int
) -> tuple[Member, ...]:
    """Return who, outside the new set, holds everything acknowledged as replicated.

    Below the minimum nothing more is acknowledged as replicated, so whoever leaves keeps its
    worth. At the minimum the set itself is enough.
    """
    if len(in_sync) >= min_in_sync:
        return ()
    inside = {member.uuid for member in in_sync}
    left = {member.uuid: member for member in (*shard.former, *shard.in_sync)}
    return tuple(sorted(member for uuid, member in left.items() if uuid not in inside))


def resized(
    shard: ShardState, in_sync: tuple[Member, ...], cause: str, *, min_in_sync: int
) -> ShardState:
    """Return the state with another in-sync set and the same leadership."""
    former = former_after(shard, in_sync, min_in_sync)
    return replace(shard, in_sync=in_sync, former=former, cause=cause, at_ms=0)


def waited_for(
    shard: ShardState, proposal: ShardState | None, admitted: Member | None, me: Member
) -> frozenset[Member]:
    """Whom the leader waits for: the stored set, the proposed one, and who is being admitted."""
    members = set(shard.in_sync)
    if proposal is not None:
        members.update(proposal.in_sync)
    if admitted is not None:
        members.add(admitted)
    members.discard(me)
    return frozenset(members)


def gone(
    member: Member, progress: ShardProgress, since_ms: int, now_ms: int, limits: ShardLimits
) -> str | None:
    """Return why a member is to leave the in-sync set, or None.

    `since_ms`: when we became leader; members have had no chance to connect before.
    """
    follower = progress.followers.get(member)
    if follower is None:
        late = now_ms - since_ms >= limits.lag_ms_max
        return f"{member.uuid} did not connect" if late else None
    if follower.left_ms is not None:
        lost = now_ms - follower.left_ms >= limits.lost_ms_max
        return f"{member.uuid} lost its connection" if lost else None
    behind_ms = now_ms - max(follower.caught_up_ms, follower.joined_ms)
    return f"{member.uuid} is {behind_ms} ms behind" if behind_ms >= limits.lag_ms_max else None


def crowded_out(
    staying: Iterable[Member], me: Member, live: Live, min_in_sync: int
) -> Member | None:
    """Return the member that is to leave the set since its disk takes no more, or None.

    As long as enough stay. Where not, puts are refused once it takes no copies; and nobody leaves
    a leader that has no room itself.
    """
    there = list(staying)
    own = live.get(me.uuid)
    if len(there) <= min_in_sync or (own is not None and own.full):
        return None
    return next((each for each in there if each != me and is_full(each, live)), None)


def is_full(member: Member, live: Live) -> bool:
    """Whether a member has said that its disk has no room for messages."""
    info = live.get(member.uuid)
    return info is not None and info.full


def joiner(member: Member, follower: FollowerProgress, live: Live) -> Member | None:
    """Return the life of a follower that may be named in the set, or None.

    That is the life whose progress is known, and only while it is the registered one: what an
    earlier life held says nothing of what a later one still holds.
    """
    info = live.get(member.uuid)
    if info is None or info.incarnation != member.incarnation or follower.left_ms is not None:
        return None
    return member


def joinable(follower: FollowerProgress, progress: ShardProgress, epoch_start: int) -> bool:
    """Whether a follower holds all that an in-sync member must.

    Everything below the high watermark, everything of earlier epochs (what was acknowledged in
    them is below our start, wherever the high watermark was), and both on disk as far as
    acknowledgements may have promised that.
    """
    return follower.end >= max(progress.high_watermark, epoch_start) and (
        follower.durable >= max(progress.durable_watermark, epoch_start)
    )


def admissible(
    follower: FollowerProgress, epoch_start: int, now_ms: int, limits: ShardLimits
) -> bool:
    """Whether a follower keeps up so well that waiting for it is all it needs to be joinable.

    Under load the watermarks run ahead of what any follower has acknowledged. Waiting for the
    follower stops them until it is there.
    """
    keeps_up = follower.caught_up_ms >= max(0, now_ms - limits.lost_ms_max)
    return keeps_up and follower.left_ms is None and follower.end >= epoch_start
