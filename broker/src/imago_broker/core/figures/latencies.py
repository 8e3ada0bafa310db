"""How long things took: counts by milliseconds, and what RocketMQ's tools make of them."""

from __future__ import annotations

from typing import Final

_NS_PER_MS: Final = 1_000_000
LAST_MS: Final = 10_000
"""What took so long, or longer, is counted together."""
STEPS: Final = (
    ("[<=0ms]", 1),
    ("[0~10ms]", 10),
    ("[10~50ms]", 50),
    ("[50~100ms]", 100),
    ("[100~200ms]", 200),
    ("[200~500ms]", 500),
    ("[500ms~1s]", 1000),
    ("[1~2s]", 2000),
    ("[2~3s]", 3000),
    ("[3~4s]", 4000),
    ("[4~5s]", 5000),
    ("[5~10s]", LAST_MS),
    ("[10s~]", LAST_MS + 1),
)
"""RocketMQ's words, and the whole milliseconds below which they hold."""


class Latencies:
    """Counts since the start; noting one costs the same whatever was noted before."""

    __slots__ = ("_by_ms", "max_ns")

    def __init__(self) -> None:
        self._by_ms: dict[int, int] = {}
        self.max_ns = 0

    def note(self, ns: int, count: int) -> None:
        """Note that each of `count` took so long."""
        ms = ns // _NS_PER_MS
        self._by_ms[ms] = self._by_ms.get(ms, 0) + count
        if ns > self.max_ns:
            self.max_ns = ns
            self._join_long_ones()

    @property
    def max_ms(self) -> int:
        """The longest, in whole milliseconds."""
        return self.max_ns // _NS_PER_MS

    def distribution(self) -> str:
        """Return RocketMQ's text: a count for each of its steps."""
        counts, low = [], 0
        for words, below in STEPS:
            count = sum(n for ms, n in self._by_ms.items() if low <= ms < below)
            counts.append(f"{words}:{count}")
            low = below
        return " ".join(counts)

    def below(self, seconds: float) -> int:
        """Return how many took less than so long; what is counted together took longer."""
        return sum(n for ms, n in self._by_ms.items() if ms < seconds * 1000)

    def percentile(self, share: float) -> int:
        """Return the milliseconds within which this share of all ended; 0 where there are none."""
        total, seen = sum(self._by_ms.values()), 0
        for ms in sorted(self._by_ms):
            seen += self._by_ms[ms]
            if seen >= share * total:
                return ms
        return 0

    def _join_long_ones(self) -> None:
        for ms in [ms for ms in self._by_ms if ms > LAST_MS]:
            self._by_ms[LAST_MS] = self._by_ms.get(LAST_MS, 0) + self._by_ms.pop(ms)
