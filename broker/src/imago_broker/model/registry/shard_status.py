"""The state of a shard's replication now, as one of its members sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.model.registry.cluster import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerStatus:
    """A member as its leader sees it."""

    uuid: str
    incarnation: int
    connected: bool
    end: int
    """Log offset up to which it has said to have everything."""
    durable: int
    """Log offset up to which it has said to have everything on its disk."""
    lag_bytes: int
    """How much of the leader's log it lacks."""
    lag_ms: int
    """For how long it has lacked something; 0: it has everything."""
    stalled: str = ""
    """Why it can be sent no more of the log; "" while nothing is in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShardStatus:
    """This member's place in its shard."""

    role: Role
    epoch: int
    """Epoch of the leadership that it leads or follows; 0: none."""
    settled: bool
    """Whether the role is one in which the broker has nothing to wait for: it leads and takes
    puts, or it follows and is in sync."""
    reason: str = ""
    """What it waits for; "" when settled."""
    leader_end: int | None = None
    """End of the leader's log as told last; None: nobody has told it."""
    followers: tuple[FollowerStatus, ...] = ()
    """The other members, while this one leads."""
