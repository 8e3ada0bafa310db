"""The shape of an entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING: Final = "Nothing."
BY_ITSELF: Final = "Nothing: it passes by itself."
OPERATOR_LOG: Final = "`kubectl -n imago-system logs deploy/imago-operator`"


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
    """Return the report of a look that ended in a bug of the operator."""
    return Reason(
        kind,
        "Stalled",
        "InternalError",
        "A reconciliation hit a defect of the operator, which the message names. It stopped"
        " there; the operator tries again, later and later.",
        "`kubectl -n imago-system logs deploy/imago-operator` has the trace: report it. An edit"
        " shortly before may be the trigger; revert it.",
    )


def refused_by_kubernetes(
    kind: str, *types: str, cure: str = "`helm upgrade` puts the chart's roles back;"
) -> Iterator[Reason]:
    """Yield the conditions, of these types, where the operator may not do its part."""
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
            "The namespace's ResourceQuota has no room for the objects to create.",
            "Raise the quota, or request less.",
        )


@dataclass(frozen=True, slots=True)
class Happening:
    """An event that is no change of a condition."""

    kind: str
    reason: str
    means: str
