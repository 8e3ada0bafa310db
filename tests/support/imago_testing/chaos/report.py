"""What came of one or several runs, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_testing.chaos.violations import Broken

if TYPE_CHECKING:
    from imago_testing.chaos.history import History
    from imago_testing.chaos.violations import Violation


@dataclass(slots=True)
class Report:
    """One run, or the sum of several."""

    seeds: list[int] = field(default_factory=list)
    kills: int = 0
    seconds: float = 0.0
    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    """Answers that were errors of the protocol."""
    stored: int = 0
    violations: list[Violation] = field(default_factory=list)
    unavailable_ms: list[int] = field(default_factory=list)
    """From each kill to the next acknowledgement."""
    damage: list[str] = field(default_factory=list)
    """What is wrong in the files of the log."""

    @property
    def sound(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations and not self.damage

    def count(self, history: History) -> None:
        """Take in what happened."""
        self.sent += len(history.attempted)
        self.acknowledged += len(history.acked)
        self.stored += sum(map(len, history.final.values())) // 2  # seen through both protocols

    def add(self, other: Report) -> None:
        """Take in another run."""
        self.seeds += other.seeds
        self.kills += other.kills
        self.seconds += other.seconds
        self.sent += other.sent
        self.acknowledged += other.acknowledged
        self.refused += other.refused
        self.stored += other.stored
        self.violations += other.violations
        self.unavailable_ms += other.unavailable_ms
        self.damage += other.damage

    def text(self) -> str:
        """Return the report for people."""
        broken = Counter(each.broken for each in self.violations)
        kinds = ", ".join(f"{kind.name} {count}" for kind, count in broken.items())
        gaps = sorted(self.unavailable_ms) or [0]
        p50, p99 = gaps[len(gaps) // 2], gaps[len(gaps) * 99 // 100]
        return "\n".join([
            f"seeds          {', '.join(map(str, self.seeds))}",
            f"kills          {self.kills} in {self.seconds:.0f} s",
            f"sent           {self.sent}",
            f"acknowledged   {self.acknowledged}",
            f"refused        {self.refused}",
            f"stored         {self.stored}",
            f"lost           {broken[Broken.LOST]}",
            f"duplicated     {broken[Broken.DUPLICATED]}",
            f"broken         {kinds or 'nothing'}",
            f"unavailable    p50 {p50} ms, p99 {p99} ms, max {gaps[-1]} ms",
            f"files          {'; '.join(self.damage) or 'sound'}",
        ])  # fmt: skip
