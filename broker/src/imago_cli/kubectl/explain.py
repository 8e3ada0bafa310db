"""What the operator is at, told from a cluster's status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from imago_cli.kubectl.annotations import remarks
from imago_cli.kubectl.lateness import not_looked_at
from imago_operator.plan.rows import PlanRow
from imago_operator.reasons import find
from imago_operator.reasons.cluster import EXPLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

GOOD: Final = frozenset(
    {
        "Available",
        "CertificatesValid",
        "ConfigApplied",
        "Ready",
        "ResourcesApplied",
        "StorageReady",
        "ZooKeeperConnected",
    }
)
"""Conditions that are well when True; all others tell of something that is not."""
RUNBOOK: Final = "docs/runbook.md"


@dataclass(frozen=True, slots=True)
class Story:
    """One cluster: the case that decides, what it waits for, what a person should check."""

    cluster: str
    namespace: str
    row: str
    number: int | None
    since: str
    waits_for: str
    next: str
    notable: tuple[Mapping[str, Any], ...]
    pending: tuple[Mapping[str, str], ...]
    late: str
    """Since when nobody has looked; empty: somebody has, just now."""
    stale: bool
    """Whether the status speaks of an older spec."""
    level: str
    """Which feature level brokers may use; empty: unknown."""
    remarks: tuple[str, ...]
    """Annotations without effect."""

    @classmethod
    def of(cls, cluster: Mapping[str, Any], pending: Sequence[Mapping[str, str]]) -> Story:
        """Return the story of an ImagoCluster."""
        metadata, status = cluster["metadata"], cluster.get("status", {})
        progress = status.get("progress") or {}
        row = progress.get("row", "")
        return cls(
            cluster=metadata["name"],
            namespace=metadata.get("namespace", ""),
            row=row,
            number=next((one.number for one in PlanRow if one.title == row), None),
            since=progress.get("since", ""),
            waits_for=progress.get("waitsFor", ""),
            next=progress.get("next", ""),
            notable=tuple(one for one in status.get("conditions", ()) if _is_notable(one)),
            pending=tuple(pending),
            late=not_looked_at(cluster),
            stale=status.get("observedGeneration", 0) < metadata.get("generation", 0),
            level=_level(cluster),
            remarks=tuple(remarks(cluster)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "cluster": self.cluster,
            "namespace": self.namespace,
            "row": self.row,
            "number": self.number,
            "since": self.since,
            "waitsFor": self.waits_for,
            "next": self.next,
            "observed": not (self.stale or self.late),
            "notLookedAt": self.late,
            "conditions": [{**one, **_advice(one)} for one in self.notable],
            "pendingApprovals": [dict(one) for one in self.pending],
            "featureLevel": self.level,
            "remarks": list(self.remarks),
        }

    def lines(self) -> Iterator[str]:
        """Yield it for people."""
        if not self.row:
            yield f"{self.cluster}: the operator has not observed it yet"
            yield "  cure: is it running, and for this namespace?"
            return
        yield from self._case()
        if self.waits_for:
            yield f"  waits for: {self.waits_for}"
        if self.next:
            yield f"  next: {self.next}"
        if self.stale:
            yield "  the operator has not seen the newest spec yet"
        for one in self.notable:
            if one["type"] != "Reconciling":  # it repeats the lines above
                yield from _told(one, self.cluster)
        for desired in self.pending:
            yield f"waits for approval: {desired['summary']}"
            yield f"  kubectl imago approve {self.cluster} {desired['id']}"
        yield from self.remarks

    def _case(self) -> Iterator[str]:
        number = "" if self.number is None else f"{self.number} "
        case = f"case {number}{self.row}, since {self.since}"
        if self.late:
            yield f"{self.cluster}: {self.late}"
            yield f"  it was {case}"
        else:
            yield f"{self.cluster}: {case}"
        if self.level:
            yield f"  feature level {self.level}"


def _level(cluster: Mapping[str, Any]) -> str:
    level, held = cluster.get("status", {}).get("featureLevel"), cluster["spec"].get("featureLevel")
    if level is None:
        return ""
    return f"{level}" + (", held there by spec.featureLevel" if held == level else "")


def _is_notable(condition: Mapping[str, Any]) -> bool:
    well = condition["type"] in GOOD
    under_way = condition["reason"] == "ReplacingAuthority"
    return under_way or well is not (condition["status"] == "True")


def _told(condition: Mapping[str, Any], cluster: str) -> Iterator[str]:
    said = f": {condition['message']}" if condition.get("message") else ""
    yield f"{condition['type']}={condition['status']} {condition['reason']}{said}"
    advice = _advice(condition)
    if advice:
        yield f"  means: {advice['means']}"
        cure = advice["cure"].replace(EXPLAIN, "See what it waits for, above.")
        cure = cure.replace("See *", f"see {RUNBOOK}, *").replace("CLUSTER", cluster)
        yield f"  do: {cure}"


def _advice(condition: Mapping[str, Any]) -> dict[str, str]:
    found = find("ImagoCluster", condition["type"], condition["reason"])
    return {"means": found.means, "cure": found.cure} if found else {}
