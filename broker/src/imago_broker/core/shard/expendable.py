"""Whether a shard can do without a member: without its log, or without it as leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard.election import is_live, leader_lives

if TYPE_CHECKING:
    from imago_broker.core.shard.values import Live
    from imago_broker.model.registry.shard import ShardState


def needed_for(shard: ShardState, live: Live, uuid: str, min_in_sync: int) -> str:
    """Return what a member's log is still needed for; "" where it is for nothing.

    Every member of the in-sync set has all acknowledged records. So the log of one that is neither
    in the set, nor among those that left it when it became too small, decides no election; and
    with a whole leader and as many live in-sync members as acknowledgements need there is no
    record of which it has the only copy, or one of too few.
    """
    if not leader_lives(shard, live) or shard.leader is None:
        return "the shard has no live leader"
    if shard.in_sync_member(uuid) is not None:
        return "the in-sync set names this member"
    if any(member.uuid == uuid for member in shard.former):
        return "too few members are in sync, and this one was before"
    if live[shard.leader.uuid].damaged:
        return "the leader's log has damage, and this one may heal it"
    there = sum(is_live(member, live) for member in shard.in_sync)
    if there < min_in_sync:
        return f"{there} of {min_in_sync} in-sync members are there"
    return ""


def has_room_elsewhere(shard: ShardState, live: Live, uuid: str, crowding: int = 1) -> bool:
    """Whether another in-sync member could lead with a whole log and more room.

    `crowding`: ours, see `MemberInfo`.
    """
    others = (
        live[member.uuid]
        for member in shard.in_sync
        if member.uuid != uuid and is_live(member, live)
    )
    return any(not each.damaged and each.crowding < crowding for each in others)
