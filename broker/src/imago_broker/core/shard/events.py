"""Events for a member of a shard. The shell turns I/O into these values and does nothing else.

Events of every loop turn (appends, acknowledgements of followers) are no objects but method
calls: see `watermark.Watermark`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.core.shard.values import Live, Log, ShardProgress
    from imago_broker.model.registry.shard import Member, ShardState


@dataclass(frozen=True, slots=True)
class Registered:
    """The coordinator has our registration, with a new incarnation."""

    member: Member


@dataclass(frozen=True, slots=True)
class ViewSeen:
    """What the coordinator holds about the shard.

    `live` was never read before `shard` was. With a ticket it answers a `ReadView`: both were read
    from the coordinator itself after that effect, and after every earlier proposal was sent.
    """

    shard: ShardState
    """A state with version -1 stands for a node that does not exist."""
    live: Live
    known: frozenset[str]
    """Uuids of all data folders that ever belonged to the shard."""
    log: Log
    """Our own log at the moment."""
    ticket: int = 0
    """Of the `ReadView` that this answers; 0: a snapshot that came by itself."""


@dataclass(frozen=True, slots=True)
class ProposalDone:
    """The coordinator took our proposal; `shard` has the version that it got."""

    ticket: int
    shard: ShardState


@dataclass(frozen=True, slots=True)
class ProposalRefused:
    """The coordinator did not take our proposal and never will."""

    ticket: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProposalUnknown:
    """No answer: the proposal was taken, or was not. A fresh view will tell."""

    ticket: int


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    """The coordinator does not answer; our registration may still stand."""


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """The coordinator answers again and our registration still stands."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """Our registration is gone."""


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """Until when nobody else can have been elected in our place, as long as we lead."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Led:
    """A `Lead` effect is carried out: the epoch is on disk and begins at `log.end`."""

    epoch: int
    log: Log
    durable: int
    high_watermark: int
    """Largest high watermark that we know of from before."""


@dataclass(frozen=True, slots=True)
class NotLed:
    """A `Lead` effect was not carried out, for want of room on the disk: nothing has changed."""

    epoch: int
    epoch_seen: int
    """Highest epoch promised, as it is on disk."""


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The leader that we follow answered our greeting."""

    epoch: int
    log: Log
    """The leader's log."""
    own: Log
    """Our own log at the moment."""


@dataclass(frozen=True, slots=True)
class EpochHeard:
    """A peer says to have promised itself to this epoch: if it is above ours, our view is old."""

    epoch: int
    own: bool = False
    """Whether it is our own disk that says so."""


@dataclass(frozen=True, slots=True)
class HandoverAsked:
    """Give leadership to a member: to the one of this uuid, or to the best (None)."""

    request: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class ElectAsked:
    """A person asks this member to become the leader of a shard that has none."""

    request: str
    allow_data_loss: bool


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The process wants to end: leave the in-sync set and leadership in order."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. `progress` counts only while we lead."""

    progress: ShardProgress


Event = (
    Registered
    | ViewSeen
    | ProposalDone
    | ProposalRefused
    | ProposalUnknown
    | SessionSuspended
    | SessionResumed
    | SessionLost
    | LeaseRenewed
    | Led
    | NotLed
    | Welcomed
    | EpochHeard
    | HandoverAsked
    | ElectAsked
    | StopAsked
    | Tick
)
