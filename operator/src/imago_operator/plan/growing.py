"""Claims that grow by themselves: by how full their brokers' disks are, up to a bound, not often.

What is known of a growth is on the claim: its size, and when it last grew, written by the call that
has it grow. So an operator that dies between two calls forgets nothing. A member whose claim is
smaller than another's of its shard gets as much at once: it has to hold the same log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.model.state import ConditionFinding, written

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from imago_operator.model.state import Claim
    from imago_operator.plan.look import ClusterLook
    from imago_operator.spec.cluster.brokers import AutoGrow

GIB: Final = 1 << 30
LISTED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class ClaimGrowth:
    """What becomes of the claims that may grow by themselves."""

    sizes: dict[str, int]
    """Bytes that each of these is to ask for now, by name."""
    finding: ConditionFinding | None = None
    """What is to be said of those that do not grow though they would."""


def growth(look: ClusterLook, claims: list[Claim]) -> ClaimGrowth:
    """Return how claims of members that run grow beyond what the spec asks for."""
    auto = look.desired.spec.brokers.storage.auto_grow
    if auto is None:
        return ClaimGrowth({})
    sizes = _as_much(claims, auto)
    full, cooling = [], []
    for claim in (c for c in claims if c.name not in sizes and _is_full(look, c, auto)):
        if claim.requested >= auto.max.bytes:
            full.append(claim)
        elif (ends := _cools_until(claim, auto)) is not None and look.now < ends:
            cooling.append(f"{claim.name} not before {written(ends)}")
        else:
            sizes[claim.name] = _next(claim, auto)
    if full:
        text = f"{_listed(c.name for c in full)}: as large as autoGrow.max, {auto.max.text}, lets."
        return ClaimGrowth(sizes, _said(False, "MaxReached", text))
    if cooling:
        return ClaimGrowth(sizes, _said(True, "CoolingDown", f"To grow again: {_listed(cooling)}."))
    return ClaimGrowth(sizes)


def _as_much(claims: list[Claim], auto: AutoGrow) -> dict[str, int]:
    """Return how claims grow that are smaller than another of their shard."""
    largest: dict[int, int] = {}
    for claim in claims:
        largest[claim.shard] = max(claim.requested, largest.get(claim.shard, 0))
    most = auto.max.bytes
    sizes = {claim.name: min(largest[claim.shard], most) for claim in claims}
    return {c.name: sizes[c.name] for c in claims if sizes[c.name] > c.requested}


def _is_full(look: ClusterLook, claim: Claim, auto: AutoGrow) -> bool:
    """Whether the broker on a claim says that its disk is fuller than it may be.

    While its volume grows that says nothing yet.
    """
    if claim.capacity is not None and claim.capacity < claim.requested:
        return False
    pods = (p for p in look.observed.pods_of(claim.shard) if p.ordinal == claim.ordinal)
    broker = next((pod.broker for pod in pods), None)
    return broker is not None and broker.used is not None and 100 * broker.used >= auto.above


def _cools_until(claim: Claim, auto: AutoGrow) -> datetime | None:
    if claim.grown is None:
        return None
    return claim.grown + timedelta(seconds=auto.cool_down.seconds)


def _next(claim: Claim, auto: AutoGrow) -> int:
    """Return a step more, in whole GiB where that is a step, and no more than may be."""
    more = claim.requested * auto.step // 100
    size = claim.requested + max(more, 1)
    whole = -(-size // GIB) * GIB
    return min(whole, auto.max.bytes)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:LISTED_MAX])


def _said(holds: bool, reason: str, message: str) -> ConditionFinding:
    return ConditionFinding(type="StorageReady", holds=holds, reason=reason, message=message)
