"""What came of a run, in numbers; as text for people and as JSON for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from imago_testing.chaos.checker import Broken

if TYPE_CHECKING:
    from imago_testing.chaos.checker import Violation
    from imago_testing.chaos.history import History


@dataclass(slots=True, kw_only=True)
class ClusterReport:
    seed: int
    seconds: float = 0.0
    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    """Answers that were errors of the protocol."""
    stored: int = 0
    lost: int = 0
    duplicated: int = 0
    violations: list[str] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    gaps_ms: dict[str, list[int]] = field(default_factory=dict)
    """By fault: the longest times without any acknowledgement."""
    last_gap_ms: int = 0

    def gap(self, fault: str, seconds: float) -> None:
        """Note how long nothing was acknowledged because of a fault."""
        self.last_gap_ms = int(seconds * 1000)
        self.gaps_ms.setdefault(fault, []).append(self.last_gap_ms)

    def take(self, history: History, violations: list[Violation], exits: list[str]) -> None:
        """Take in what happened."""
        kinds = Counter(each.broken for each in violations)
        self.lost, self.duplicated = kinds[Broken.LOST], kinds[Broken.DUPLICATED]
        self.violations = [str(each) for each in violations]
        self.exits = list(exits)
        self.sent, self.acknowledged = len(history.attempted), len(history.acked)
        self.stored = sum(map(len, history.final.values())) // 2  # seen through both protocols

    def add(self, other: ClusterReport) -> None:
        """Take in another run."""
        for name in ("seconds", "sent", "acknowledged", "refused", "stored", "lost", "duplicated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.violations += other.violations
        self.exits += other.exits
        for fault, gaps in other.gaps_ms.items():
            self.gaps_ms.setdefault(fault, []).extend(gaps)

    def _kinds(self) -> str:
        kinds = Counter(each.partition(":")[0] for each in self.violations)
        return ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())

    def json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """Return the report for people."""
        lines = [
            f"seed           {self.seed}",
            f"seconds        {self.seconds:.0f}",
            f"sent           {self.sent}",
            f"acknowledged   {self.acknowledged}",
            f"refused        {self.refused}",
            f"stored         {self.stored}",
            f"lost           {self.lost}",
            f"duplicated     {self.duplicated}",
            f"broken         {self._kinds() or 'nothing'}",
            f"ended          {'; '.join(self.exits) or 'nobody by itself'}",
            "",
            f"{'fault':<30} times   without an acknowledgement: p50 / max ms",
        ]
        for fault, gaps in sorted(self.gaps_ms.items()):
            ordered = sorted(gaps)
            middle = ordered[len(ordered) // 2]
            lines.append(f"{fault:<30} {len(gaps):>5}   {middle:>8} / {ordered[-1]}")
        return "\n".join(lines)
