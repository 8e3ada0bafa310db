"""What a member of a shard is to do. The shell carries effects out in their order.

Those marked *disk* are finished, and durable, before the next one begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.model.registry.shard import Member, ShardState


@dataclass(frozen=True, slots=True)
class Propose:
    """Compare-and-set the shard's state, in one transaction with a check of our registration.

    Answered, with the ticket, by exactly one of `ProposalDone`, `ProposalRefused`,
    `ProposalUnknown`. The shell stamps it with its wall clock (`model.shard.stamped`).
    """

    shard: ShardState
    expected_version: int
    ticket: int


@dataclass(frozen=True, slots=True)
class ReadView:
    """Read the shard's state, and then its registrations, from the coordinator itself.

    Answered by a `ViewSeen` with the ticket; tried again until it succeeds or the session is
    lost. A later ticket replaces an earlier one, whose answer counts no more.
    """

    ticket: int


@dataclass(frozen=True, slots=True)
class Promise:
    """*Disk.* Note the epoch: nothing of a lower one is taken or answered any more."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Lead:
    """*Disk.* Open this epoch at our log end; then tell `Led`. Puts wait for `AcceptPuts`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stop serving as leader: refuse puts and what waits, close followers' connections."""

    why: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Connect to this leader, again and again until told otherwise; greet it, tell `Welcomed`.

    Comes after the `Promise` of its epoch. Replaces what was followed before.
    """

    leader: Member
    epoch: int


@dataclass(frozen=True, slots=True)
class Unfollow:
    """Close the connection to the leader; what it sent and was not taken yet is dropped."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """*Disk.* Cut our log at this record border: views, log, then epochs."""

    end: int


@dataclass(frozen=True, slots=True)
class Reset:
    """*Disk.* Throw our log away and begin an empty one at this offset."""

    start: int


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Ask the leader for its log from `offset`; `epoch` is that of the byte before, 0 for none."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the connection to the leader and connect again: what it said cannot be taken."""

    why: str


@dataclass(frozen=True, slots=True)
class WaitFor:
    """The high watermark waits for these members besides ourselves.

    Carried out by `ShardMachine` itself.
    """

    members: frozenset[Member]


@dataclass(frozen=True, slots=True)
class AcceptPuts:
    """Take puts; take and acknowledge those at replicated levels only while `replicated`.

    With fewer members than the minimum in the set they are not acknowledged, also when they were
    taken while there were enough: the copies that they would promise are not there. It comes
    before the high watermark rises because fewer are waited for.
    """

    replicated: bool


@dataclass(frozen=True, slots=True)
class HoldPuts:
    """Let new puts wait: leadership is being handed over, for `handover_ms_max` at most.

    Those that were taken at replicated levels are acknowledged only while `replicated`, those at
    levels that wait for no other member only while `alone`; it comes again when that changes.
    """

    replicated: bool
    alone: bool = True
    """False once we have proposed that nobody leads: whoever is elected then may lack what we
    alone have, and no lease of ours keeps it from being elected."""


@dataclass(frozen=True, slots=True)
class Mark:
    """*Disk.* Note whether our log may lack acknowledged records (`unclean`).

    The note outlives restarts: a second start under the same boot id does not heal it. Only
    `Mark(False)` takes it back, when the member is in sync again.
    """

    unclean: bool


@dataclass(frozen=True, slots=True)
class Describe:
    """Renew what our registration says about our log; the incarnation stays."""

    unclean: bool
    log_epoch: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The orderly stop is done as far as the shard goes: unregister, close the store, end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of what `HandoverAsked` or `ElectAsked` began."""

    request: str
    done: bool
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the event log."""

    text: str


Effect = (
    Propose
    | ReadView
    | Promise
    | Lead
    | StepDown
    | Follow
    | Unfollow
    | Truncate
    | Reset
    | FetchFrom
    | Hangup
    | WaitFor
    | AcceptPuts
    | HoldPuts
    | Mark
    | Describe
    | Leave
    | Answer
    | Note
)
