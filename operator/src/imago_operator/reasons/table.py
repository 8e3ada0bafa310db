"""All entries, and how one is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.reasons import cluster, contents, mirror, pipeline

if TYPE_CHECKING:
    from imago_operator.reasons.model import Happening, Reason

REASONS: Final[tuple[Reason, ...]] = (
    *cluster.REASONS,
    *contents.REASONS,
    *mirror.REASONS,
    *pipeline.REASONS,
)
EVENTS: Final[tuple[Happening, ...]] = (*cluster.EVENTS, *contents.EVENTS)
_BY_NAME: Final = {(one.kind, one.type, one.reason): one for one in REASONS}


def find(kind: str, type_: str, reason: str) -> Reason | None:
    """Return the entry of a reason; None for one that a newer operator may know."""
    return _BY_NAME.get((kind, type_, reason))
