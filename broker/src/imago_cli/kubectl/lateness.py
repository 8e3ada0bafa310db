"""Whether the operator still looks at a cluster: what its status says is worth no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LATE: Final = timedelta(seconds=90)
"""Three times as long as the operator leaves between two looks."""


def not_looked_at(one: Mapping[str, Any]) -> str:
    """Say since when the operator has not looked at a cluster; empty: it has, just now."""
    said = one.get("status", {}).get("lookedAt")
    if said is None:
        return ""
    age = datetime.now(UTC) - datetime.fromisoformat(said)
    if age < LATE:
        return ""
    since = f"last observed {said} ({int(age.total_seconds())} s ago): what follows may no longer"
    conditions = one.get("status", {}).get("conditions", ())
    if any((c["type"], c.get("reason")) == ("Available", "NotObserved") for c in conditions):
        return f"{since} be so: the operator observes it again once that is cured"
    return f"{since} be so. Is the operator running? kubectl -n imago-system get pods"
