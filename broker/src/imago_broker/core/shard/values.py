"""What the leadership of a shard is decided on: logs, members, limits, progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from imago_broker.model.registry.shard import Member

Epochs = tuple[tuple[int, int], ...]
"""(epoch, log offset at which it begins), both rising. An epoch ends where the next begins."""


class Log(NamedTuple):
    """The extent of a member's log."""

    start: int = 0
    """Offset of the oldest byte that is kept."""
    end: int = 0
    epochs: Epochs = ()
    high_watermark: int = 0
    """Largest high watermark that the member knows. Never a reason to cut: it may be old."""
    damaged: bool = False
    """Whether a part of it is out of service."""


EMPTY = Log()
"""The log of a new member."""


class MemberInfo(NamedTuple):
    """What a live registration says about its member."""

    incarnation: int
    replica: int = 0
    unclean: bool = False
    """Whether the log may lack records that were acknowledged when the member was in sync."""
    log_epoch: int = 0
    """Epoch of the last byte of the log, 0 for an empty one. Never the number of an epoch in
    which nothing was written: after a loss of power that would outrank better logs."""
    log_end: int = 0
    damaged: bool = False
    """Whether a part of the log is out of service: it leads only where no whole one can."""
    full: bool = False
    """Whether its disk has no room for messages: it leads, and is waited for, only where too few
    have some."""
    crowded: bool = False
    """Whether its disk is so full that old messages would have to go for new ones, if it led."""
    epoch_seen: int = 0
    """Highest epoch that the member had promised itself to when its registration was written."""
    standing: bool = True
    """Whether it neither led nor followed then: what it says of its log is so until it does."""
    leads: bool = False
    """Whether it led then, in `epoch_seen`."""

    @property
    def crowding(self) -> int:
        """How little room its disk has: 0 enough, 1 crowded, 2 full."""
        return 2 if self.full else int(self.crowded)


Live = Mapping[str, MemberInfo]
"""Members that are registered now, by uuid."""


class FollowerProgress(NamedTuple):
    """How far the leader knows a follower to be, in the epoch of this leadership."""

    end: int
    """Log offset up to which the follower has written."""
    durable: int
    """Log offset up to which the follower has synced."""
    joined_ms: int
    """When the follower came, or, if it came again, was last known to have everything before."""
    caught_up_ms: int
    """When the follower last had everything that the leader had; -1: not since it joined."""
    left_ms: int | None = None
    """Since when its connection is gone; None while it is connected."""


class ShardProgress(NamedTuple):
    """How far the members of a shard are, seen by the leader."""

    end: int
    """The leader's own log end."""
    durable: int
    high_watermark: int
    durable_watermark: int
    """Log offset below which every in-sync member has synced."""
    followers: Mapping[Member, FollowerProgress]


class MachineRole(StrEnum):
    """What a member does at the moment."""

    OUT = "out"
    """Not registered: takes no part."""
    ELECTING = "electing"
    """Knows of no live leader."""
    FOLLOWING = "following"
    LEADING = "leading"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLimits:
    """Numbers of the protocol. Times in milliseconds."""

    min_in_sync: int = 2
    """Replicated puts are taken while the in-sync set has at least this many members."""
    lag_ms_max: int = 2000
    """A member that is behind for this long leaves the in-sync set."""
    lost_ms_max: int = 500
    """A member whose connection is gone for this long leaves the in-sync set."""
    stagger_ms: int = 50
    """The n-th best candidate waits n times this long before it proposes itself."""
    compare_ms_max: int = 5000
    """How long a candidate waits for others that may have more of the log, or a whole one."""
    handover_ms_max: int = 300
    """How long puts are held while the target of a handover catches up."""
    stop_ms_max: int = 2000
    """How long an orderly stop tries to hand over or to leave the in-sync set."""

    def __post_init__(self) -> None:
        if self.min_in_sync < 1:
            raise WrongError(f"min_in_sync: {self.min_in_sync}, must be at least 1")
