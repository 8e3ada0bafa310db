"""What a topic's and a group's resource have in common: who counts, what stays, what goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from imago_operator.contents.belonging import Claimant, winner
from imago_operator.contents.conditions import ContentRefusal, holds
from imago_operator.contents.leaving import Leaving, leave

if TYPE_CHECKING:
    from datetime import datetime

    from imago_operator.model.state import ConditionFinding

DELETE = "Delete"


class ClaimingSpec(Protocol):
    """What it says of its end."""

    @property
    def deletion_policy(self) -> str:
        """Whether what it is about goes with it: Retain or Delete."""


class ClaimingStatus(Protocol):
    """What is remembered of it."""

    @property
    def applied_hash(self) -> str | None:
        """Fingerprint of what brokers have confirmed; None: it was never ours."""


SpecT_co = TypeVar("SpecT_co", bound=ClaimingSpec, covariant=True)
StatusT_co = TypeVar("StatusT_co", bound=ClaimingStatus, covariant=True)
ActT_co = TypeVar("ActT_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLook(Generic[SpecT_co, StatusT_co]):
    """One look at a resource that says what a topic or a group is to be."""

    me: Claimant
    spec: SpecT_co
    name: str
    """That of the topic or group."""
    status: StatusT_co
    refusal: ContentRefusal | None = None
    """Why it has no cluster."""
    rivals: tuple[Claimant, ...] = ()
    """Other resources about the same, in the same cluster, that may be."""
    listed: bool = True
    """Whether brokers told what there is."""

    @property
    def owner(self) -> Claimant | None:
        """Whose word counts: None where all are being deleted."""
        return winner((self.me, *self.rivals))

    @property
    def counts(self) -> bool:
        """Whether its own word does."""
        return self.refusal is None and self.owner is self.me


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan(Generic[ActT_co, StatusT_co]):
    """What is done now, in this order: `record`, `hold`, `act`, `release`."""

    act: ActT_co | None = None
    hold: bool | None = None
    """Whether the resource has our finalizer from now on; None: as it is."""
    release: Leaving | None = None
    """A deleted resource may go, and why."""
    record: StatusT_co | None = None
    """To be written before anything else; what depends on it is done in a later look."""
    findings: tuple[ConditionFinding, ...] = ()
    applies: str | None = None
    """Fingerprint of the settings that brokers have once `act` has succeeded."""


class Still(NamedTuple):
    """Why nothing is done for a resource that stays."""

    finding: ConditionFinding
    hold: bool | None = None


def still(look: ClaimLook[ClaimingSpec, ClaimingStatus]) -> Still | None:
    """Return why nothing is done about what a resource says; None: its word counts."""
    if look.me.paused:
        text = "Paused: remove the annotation imago.dev/pause-reconciliation to continue."
        return Still(holds("Paused", "Annotation", text))
    if look.refusal is not None:
        return Still(look.refusal.finding)
    owner = look.owner
    if owner is None or owner is look.me:
        return None
    text = f"{owner.namespace}/{owner.name} is older and already defines {look.name}."
    return Still(ContentRefusal("Conflict", text).finding, hold=False if look.me.held else None)


def held(look: ClaimLook[ClaimingSpec, ClaimingStatus]) -> bool | None:
    """Return whether it is to get our finalizer or to lose it; None: it is as it is to be."""
    wanted = look.spec.deletion_policy == DELETE
    return None if wanted == look.me.held else wanted


def leaving(
    look: ClaimLook[ClaimingSpec, ClaimingStatus],
    now: datetime,
    *,
    exists: bool | None,
    release_after_s: float,
) -> Leaving | None:
    """Return what is done about a deleted resource; None: it is not held.

    `exists`: whether what it is about is there, None where nobody can say.
    """
    ours = look.status.applied_hash is not None
    return leave(
        look.me,
        wanted=look.spec.deletion_policy == DELETE and ours,
        refusal=look.refusal,
        claimed=look.owner is not None,
        exists=exists,
        now=now,
        release_after_s=release_after_s,
    )
