"""The shape of an entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING: Final = "Nothing."
BY_ITSELF: Final = "Nothing: it passes by itself."


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of one condition."""

    kind: str
    """Kind of resource that has it."""
    type: str
    reason: str
    means: str
    cure: str = NOTHING


def own_mistake(kind: str) -> Reason:
    """Return what is said where a look ended in a mistake of the operator's own."""
    return Reason(
        kind,
        "Stalled",
        "InternalError",
        "A look at it ended in a mistake of the operator's own, which the message names. Nothing"
        " more was done in that look; it looks again, later and later.",
        "`kubectl -n imago-system logs deploy/imago-operator` has the trace: report it. An edit"
        " shortly before may be what it stumbles over; take that back.",
    )


def refused_by_kubernetes(
    kind: str, *types: str, cure: str = "`helm upgrade` puts the chart's roles back;"
) -> Iterator[Reason]:
    """Yield what is said, under these types, where the operator may not do its part."""
    for type_ in types:
        yield Reason(
            kind,
            type_,
            "PermissionDenied",
            "Kubernetes refuses the operator a right that it needs; the message names it.",
            f"{cure} see *The operator itself*.",
        )
        yield Reason(
            kind,
            type_,
            "QuotaExceeded",
            "The namespace's ResourceQuota has no room for what is to be made.",
            "Raise the quota, or ask for less.",
        )


@dataclass(frozen=True, slots=True)
class Happening:
    """An event that is no change of a condition."""

    kind: str
    reason: str
    means: str
