"""What administrators and metrics are told of a member's part in its shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.shard_status import FollowerStatus

if TYPE_CHECKING:
    from imago_broker.core.shard.values import FollowerProgress
    from imago_broker.model.shard import Member
    from imago_broker.replication.shell import ShardShell


def followers(shell: ShardShell, now_ms: int) -> tuple[FollowerStatus, ...]:
    """Return the other members as this one sees them while it leads; else nothing."""
    if shell.duties.leading is None:
        return ()
    progress = shell.machine.watermark.progress()
    return tuple(
        _follower(member, each, progress.end, now_ms)
        for member, each in sorted(progress.followers.items())
    )


def _follower(
    member: Member, progress: FollowerProgress, leader_end: int, now_ms: int
) -> FollowerStatus:
    lag_bytes = max(0, leader_end - progress.end)
    since_ms = max(progress.caught_up_ms, progress.joined_ms)
    return FollowerStatus(
        uuid=member.uuid,
        incarnation=member.incarnation,
        connected=progress.left_ms is None,
        end=progress.end,
        durable=progress.durable,
        lag_bytes=lag_bytes,
        lag_ms=max(0, now_ms - since_ms) if lag_bytes else 0,
    )
