"""A member's part in its shard, for administrators and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.registry.shard_status import FollowerStatus
from imago_broker.replication.leader.sending import FRAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.core.shard.values import FollowerProgress
    from imago_broker.model.registry.shard import Member
    from imago_broker.replication.leader.leading import Refused
    from imago_broker.replication.shell import ShardShell
    from imago_log.results import DamagedRange


STALLED_MS = 2000
"""A follower that has lacked something for so long, with damage ahead of it, waits for that."""


def followers(
    shell: ShardShell, now_ms: int, damaged: Sequence[DamagedRange]
) -> tuple[FollowerStatus, ...]:
    """Return the other members as this one sees them while it leads; else nothing.

    `damaged`: what cannot be sent to them of our log.
    """
    leading = shell.executor.leading
    if leading is None:
        return ()
    progress = shell.machine.watermark.progress()
    return tuple(
        _follower(member, each, progress.end, now_ms, damaged, leading.refusals.get(member.uuid))
        for member, each in sorted(progress.followers.items())
    )


def _follower(
    member: Member,
    progress: FollowerProgress,
    leader_end: int,
    now_ms: int,
    damaged: Sequence[DamagedRange],
    refused: Refused | None,
) -> FollowerStatus:
    lag_bytes = max(0, leader_end - progress.end)
    since_ms = max(progress.caught_up_ms, progress.joined_ms)
    lag_ms = max(0, now_ms - since_ms) if lag_bytes else 0
    stalled = _in_the_way(progress.end, damaged) if lag_ms >= STALLED_MS else ""
    if not stalled and refused is not None:  # it comes again and again, so it lags never long
        stalled = f"it refuses what follows log offset {refused.offset}: {refused.reason}"
    return FollowerStatus(
        uuid=member.uuid,
        incarnation=member.incarnation,
        connected=progress.left_ms is None,
        end=progress.end,
        durable=progress.durable,
        lag_bytes=lag_bytes,
        lag_ms=lag_ms,
        stalled=stalled,
    )


def _in_the_way(end: int, damaged: Sequence[DamagedRange]) -> str:
    """Say which damage keeps a copy from going on behind `end`.

    What is sent at once is taken as a whole, so a copy may end before the damage begins.
    """
    for each in damaged:
        if end < each.end:
            near = each.start < end + FRAME_BYTES
            return f"log offsets {each.start} to {each.end} are damaged here" if near else ""
    return ""
