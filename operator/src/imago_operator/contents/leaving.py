"""A deleted resource whose topic or group goes with it: when it is let go, and when not yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_operator.contents.conditions import ContentRefusal
from imago_operator.model.state import parsed

if TYPE_CHECKING:
    from datetime import datetime

    from imago_operator.contents.belonging import Claimant
    from imago_operator.model.state import ConditionFinding


@dataclass(frozen=True, slots=True)
class Leaving:
    """What becomes of a deleted resource now: exactly one of the two, or it waits."""

    reason: str
    message: str
    release: bool = False
    delete: bool = False
    warning: bool = False
    """Whether something stays behind that was to go."""

    @property
    def finding(self) -> ConditionFinding:
        return ContentRefusal(self.reason, self.message).finding


def leave(
    me: Claimant,
    *,
    wanted: bool,
    refusal: ContentRefusal | None,
    claimed: bool,
    exists: bool | None,
    now: datetime,
    release_after_s: float,
) -> Leaving | None:
    """Return what is done about a deleted resource; None: it is not held.

    `wanted`: whether what it is about goes with it; `claimed`: another resource is about the same;
    `exists`: whether it is there, None where nobody can say.
    """
    if not me.held:
        return None
    if not wanted:
        return Leaving("Retained", "It stays: only the resource is deleted.", release=True)
    if refusal is not None:
        text = f"It goes without its cluster: {refusal.message}"
        return Leaving("ClusterGone", text, release=True)
    if claimed:
        text = "It stays: another resource defines it."
        return Leaving("StillClaimed", text, release=True)
    if exists is None:
        return _unreachable(me, now, release_after_s)
    if exists:
        return Leaving("Deleting", "It is being deleted on all shards.", delete=True)
    return Leaving("Deleted", "It is deleted on all shards.", release=True)


def _unreachable(me: Claimant, now: datetime, release_after_s: float) -> Leaving:
    since = parsed(me.deleted_at) if me.deleted_at else now
    if (now - since).total_seconds() < release_after_s:
        text = f"No broker answers; the resource waits {release_after_s:.0f} s for one."
        return Leaving("ClusterNotReady", text)
    text = f"No broker has answered for {release_after_s:.0f} s: what brokers have stays."
    return Leaving("ReleasedUnreachable", text, release=True, warning=True)
