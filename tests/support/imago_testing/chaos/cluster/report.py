"""What came of a run, in numbers; as text for people and as JSON for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from imago_testing.chaos.violations import Broken

if TYPE_CHECKING:
    from imago_testing.chaos.history import History
    from imago_testing.chaos.violations import Violation


_SUMS = (
    *("seconds", "sent", "acknowledged", "refused", "stored", "lost", "duplicated", "reordered"),
    *("calm_bytes", "calm_seconds"),
)


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
    reordered: int = 0
    violations: list[str] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    gaps_ms: dict[str, list[int]] = field(default_factory=dict)
    """By fault: the longest times without any acknowledgement."""
    whole_ms: dict[str, list[int]] = field(default_factory=dict)
    """By fault: from when nothing was broken any more until every member was in sync."""
    busy_percent: dict[str, list[int]] = field(default_factory=dict)
    """By fault: how much of that time some process of the machine waited for a core."""
    calm_bytes: int = 0
    """Acknowledged while nothing was broken."""
    calm_seconds: float = 0.0
    last: str = ""
    """What there is to say of the last fault."""

    @property
    def rate(self) -> float:
        """Bytes a second that clients wrote between the faults."""
        return self.calm_bytes / self.calm_seconds if self.calm_seconds else 0.0

    def fault(self, name: str, *, gap_s: float, whole_s: float, busy: float) -> None:
        """Note how long nothing was acknowledged because of a fault, and not all was in sync.

        `busy`: the share of the time in which a process waited for a core.
        """
        percent = round(busy * 100)
        self.busy_percent.setdefault(name, []).append(percent)
        gap_ms, whole_ms = int(gap_s * 1000), int(whole_s * 1000)
        self.gaps_ms.setdefault(name, []).append(gap_ms)
        self.whole_ms.setdefault(name, []).append(whole_ms)
        times = f"{gap_ms} ms without an acknowledgement, in sync after {whole_ms} ms"
        self.last = f"{times}, machine {percent} % busy"

    def calm(self, size: int, seconds: float) -> None:
        """Note what was acknowledged in a time in which nothing was broken."""
        self.calm_bytes += size
        self.calm_seconds += seconds

    def hold_against(self, rate_min: float) -> None:
        """Take too low a rate between the faults as a violation."""
        if self.rate < rate_min:
            text = f"{self.rate / 1e6:.2f} MB/s between faults, {rate_min / 1e6:.2f} are wanted"
            self.violations.append(f"SLOW: {text}")

    def take(self, history: History, violations: list[Violation], exits: list[str]) -> None:
        """Take in what happened."""
        kinds = Counter(each.broken for each in violations)
        self.lost, self.duplicated = kinds[Broken.LOST], kinds[Broken.DUPLICATED]
        self.reordered = kinds[Broken.REORDERED]
        self.violations = [str(each) for each in violations]
        self.exits = list(exits)
        self.sent, self.acknowledged = len(history.attempted), len(history.acked)
        if history.endings:  # seen through both protocols
            self.stored = sum(map(len, history.endings[0].messages.values())) // 2

    def add(self, other: ClusterReport) -> None:
        """Take in another run."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.violations += other.violations
        self.exits += other.exits
        for mine, others in (
            (self.gaps_ms, other.gaps_ms),
            (self.whole_ms, other.whole_ms),
            (self.busy_percent, other.busy_percent),
        ):
            for fault, times in others.items():
                mine.setdefault(fault, []).extend(times)

    def _kinds(self) -> str:
        kinds = Counter(each.partition(":")[0] for each in self.violations)
        return ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())

    def json(self) -> dict[str, Any]:
        del (told := asdict(self))["last"]
        return told | {"rate": self.rate, "faults": sum(map(len, self.gaps_ms.values()))}

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
            f"out of order   {self.reordered}",
            f"between faults {self.rate / 1e6:.2f} MB/s for {self.calm_seconds:.0f} s",
            f"broken         {self._kinds() or 'nothing'}",
            f"ended          {_counted(self.exits) or 'nobody by itself'}",
            "",
            f"{'fault':<30} times   without an acknowledgement   until all are in sync    machine",
            f"{'':<30}              p50 / max ms               p50 / max ms      busy %",
        ]
        for fault, gaps in sorted(self.gaps_ms.items()):
            spans = f"{_span(gaps):>23}   {_span(self.whole_ms[fault]):>23}"
            spans += f"   {max(self.busy_percent[fault]):>9}"
            lines.append(f"{fault:<30} {len(gaps):>5}   {spans}")
        return "\n".join(lines)


def _counted(texts: list[str]) -> str:
    return "\n               ".join(
        f"{text}, {count} times" for text, count in Counter(texts).items()
    )


def _span(times: list[int]) -> str:
    ordered = sorted(times)
    return f"{ordered[len(ordered) // 2]} / {ordered[-1]}"
