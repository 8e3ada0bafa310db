"""What a broker's figures were in the last day, ten seconds apart: what charts are drawn from.

A figure takes two bytes, on a scale of powers of two that is wrong by 0.03 % at most: a day of all
series is less than 2 MB. Topics and groups have a series while there is room: of more, those that
were used last.
"""

from __future__ import annotations

from array import array
from itertools import repeat
from math import log2
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

SLOT_MS: Final = 10_000
SLOTS: Final = 8640
SERIES_MAX: Final = 55
"""Topics with a series, and groups."""
QUIET_SLOTS: Final = 6
"""A topic or group that was quiet for so long gives its series to another that needs one."""
BRIDGED_SLOTS: Final = 3
"""A look that came late counts for so many slots: of a longer pause nothing is known."""
_UNKNOWN: Final = 0xFFFF
_PER_DOUBLING: Final = 1600


def coded(value: float) -> int:
    """Return a figure as two bytes; from 2**40 on all are alike."""
    return min(_UNKNOWN - 1, round(log2(1 + max(0.0, value)) * _PER_DOUBLING))


def decoded(code: int) -> float:
    return float(2 ** (code / _PER_DOUBLING) - 1)


class SeriesPart(NamedTuple):
    """A part of a series, in equal steps; None: nothing is known of a step."""

    from_ms: int
    step_ms: int
    values: list[float | None]

    def shifted(self, from_ms: int) -> SeriesPart:
        """Return the same figures, beginning at another time."""
        skipped = (from_ms - self.from_ms) // self.step_ms
        count, values = len(self.values), [*repeat(None, -skipped), *self.values[max(0, skipped) :]]
        return SeriesPart(from_ms, self.step_ms, [*values, *repeat(None, skipped)][:count])


class DaySeries:
    """One figure: a ring of slots."""

    __slots__ = ("used_slot", "values")

    def __init__(self, slots: int, used_slot: int) -> None:
        self.values = array("H", [_UNKNOWN]) * slots
        self.used_slot = used_slot

    def put(self, slots: Iterable[int], value: float | None) -> None:
        code, count = _UNKNOWN if value is None else coded(value), len(self.values)
        for slot in slots:
            self.values[slot % count] = code


class DayHistory:
    """The series of one broker, by name: its own counters, topics and groups."""

    def __init__(
        self, counters: Iterable[str], *, slots: int = SLOTS, series_max: int = SERIES_MAX
    ) -> None:
        self._slots, self._series_max = slots, series_max
        self._slot: int | None = None
        self._noted_ms = 0
        self._totals: Mapping[str, int] = {}
        self.counters = {name: DaySeries(slots, 0) for name in counters}
        """How much they grew in a second."""
        self.topics: dict[str, DaySeries] = {}
        """Messages that came in a second."""
        self.groups: dict[str, DaySeries] = {}
        """Messages that are behind."""

    def is_due(self, now_ms: int) -> bool:
        """Whether nothing was noted yet of this slot."""
        return now_ms // SLOT_MS != self._slot

    @property
    def has_room(self) -> bool:
        """Whether one more group can have a series."""
        return len(self.groups) < self._series_max

    def admit(self, now_ms: int, moved: Iterable[str]) -> list[str]:
        """Note which groups have moved; return those with a series."""
        for name in moved:
            self._use(self.groups, name, now_ms // SLOT_MS)
        return list(self.groups)

    def note(
        self,
        now_ms: int,
        totals: Mapping[str, int],
        grown: Mapping[str, int],
        lags: Mapping[str, int | None],
    ) -> None:
        """Note counters, by how much topics grew since the last note, and how far groups are.

        `lags`: None of a group that there is not any more; of others that are left out nothing is
        known.
        """
        slot, before = now_ms // SLOT_MS, self._slot
        slots, seconds = self._turn_to(slot), (now_ms - self._noted_ms) / 1000
        known = before is not None and seconds > 0
        for name, series in self.counters.items():
            growth = totals[name] - self._totals.get(name, totals[name])
            series.put(slots, growth / seconds if known and growth >= 0 else None)
        for name in grown:
            self._use(self.topics, name, slot)
        for name, series in self.topics.items():
            series.put(slots, grown.get(name, 0) / seconds if known else None)
        for name, series in list(self.groups.items()):
            if name in lags and lags[name] is None:
                del self.groups[name]
            else:
                series.put(slots, lags.get(name))
        self._noted_ms, self._totals = now_ms, dict(totals)

    def cut(
        self, series: DaySeries, now_ms: int, *, span_ms: int, points: int, peak: bool
    ) -> SeriesPart:
        """Return the last part of a series in `points` steps at most: their average, or `peak`.

        Steps begin at multiples of their length, so that those of several brokers are the same.
        """
        at = self.nothing(now_ms, span_ms=span_ms, points=points)
        first, step = at.from_ms // SLOT_MS, at.step_ms // SLOT_MS
        starts = range(first, first + len(at.values) * step, step)
        values = [self._of(series, range(start, start + step), peak) for start in starts]
        return at._replace(values=values)

    def nothing(self, now_ms: int, *, span_ms: int, points: int) -> SeriesPart:
        """Return such a part of which nothing is known."""
        wanted = min(self._slots, -(-span_ms // SLOT_MS))
        step = -(-wanted // points)
        count = -(-wanted // step)
        first = (now_ms // SLOT_MS // step + 1 - count) * step
        return SeriesPart(first * SLOT_MS, step * SLOT_MS, [None] * count)

    def _of(self, series: DaySeries, slots: Iterable[int], peak: bool) -> float | None:
        codes = [code for code in self._codes(series, slots) if code != _UNKNOWN]
        if not codes:
            return None
        value = decoded(max(codes)) if peak else sum(map(decoded, codes)) / len(codes)
        return float(f"{value:.3g}")

    def _codes(self, series: DaySeries, slots: Iterable[int]) -> Iterator[int]:
        last = -1 if self._slot is None else self._slot
        for slot in slots:
            if last - self._slots < slot <= last:
                yield series.values[slot % self._slots]

    def _turn_to(self, slot: int) -> Collection[int]:
        """Forget what stands where the time now is; return the slots that are to be filled."""
        before, self._slot = self._slot, slot
        if before is None:
            return range(slot, slot + 1)
        # A clock that was set back has what stands after it noted once more.
        first, last = (before + 1, slot) if slot > before else (slot, before)
        passed = range(max(first, last - self._slots + 1), last + 1)
        for series in (*self.counters.values(), *self.topics.values(), *self.groups.values()):
            series.put(passed, None)
        return range(first if 0 < slot - before <= BRIDGED_SLOTS else slot, slot + 1)

    def _use(self, known: dict[str, DaySeries], name: str, slot: int) -> None:
        series = known.get(name)
        if series is None:
            if len(known) >= self._series_max:
                oldest = min(known, key=lambda each: known[each].used_slot)
                if slot - known[oldest].used_slot < QUIET_SLOTS:
                    return
                del known[oldest]
            series = known[name] = DaySeries(self._slots, slot)
        series.used_slot = slot
