"""The last day of a broker's figures: what is kept, what is forgotten, and in how much memory."""

from __future__ import annotations

import random

import pytest

from imago_broker.core.figures.day_history import (
    QUIET_SLOTS,
    SERIES_MAX,
    SLOT_MS,
    SLOTS,
    DayHistory,
    SeriesPart,
    coded,
    decoded,
)

START = 1_700_000_000_000
DAY_MS = SLOTS * SLOT_MS


def in_of(history: DayHistory, now_ms: int, slots: int) -> list[float | None]:
    series = history.counters["in"]
    return history.cut(series, now_ms, span_ms=slots * SLOT_MS, points=slots, peak=False).values


def noted(history: DayHistory, *marks: tuple[int, int]) -> DayHistory:
    """Note what the counter was in slots after the start."""
    for slot, total in marks:
        history.note(START + slot * SLOT_MS, {"in": total}, {}, {})
    return history


@pytest.mark.parametrize("value", [0, 1, 3, 100, 54_321, 2**39, 0.1, 0.25, 17.5])
def test_two_bytes_are_near_enough(value: float) -> None:
    assert decoded(coded(value)) == pytest.approx(value, rel=3e-3 if value < 1 else 5e-4)


def test_what_does_not_fit_is_cut_off() -> None:
    assert coded(-1) == 0
    assert decoded(coded(2**60)) == pytest.approx(2**40.96, rel=0.01)


def test_counters_become_rates() -> None:
    history = noted(DayHistory(["in"]), (0, 1000), (1, 1100), (2, 1100), (3, 1350))
    assert in_of(history, START + 3 * SLOT_MS, 5) == [None, None, 10, 0, 25]


def test_a_late_look_is_spread_and_a_pause_is_a_gap() -> None:
    history = noted(DayHistory(["in"]), (0, 0), (2, 100), (10, 900))
    shown = in_of(history, START + 10 * SLOT_MS, 11)
    assert shown == [None, 5, 5, *[None] * 7, 10]


def test_a_counter_that_falls_says_nothing() -> None:
    history = noted(DayHistory(["in"]), (0, 500), (1, 20), (2, 30))
    assert in_of(history, START + 2 * SLOT_MS, 2) == [None, 1]


def test_a_clock_that_goes_back_takes_back_what_it_said() -> None:
    history = noted(DayHistory(["in"]), (0, 0), (1, 100), (2, 200), (3, 300), (1, 400), (2, 600))
    assert in_of(history, START + 3 * SLOT_MS, 4) == [None, None, 20, None]


def test_a_day_later_a_slot_is_another() -> None:
    history = noted(DayHistory(["in"], slots=4), (0, 0), (1, 100), (2, 200), (3, 300), (4, 500))
    assert in_of(history, START + 4 * SLOT_MS, 4) == [10, 10, 10, 20]
    assert in_of(history, START + 6 * SLOT_MS, 4) == [10, 20, None, None], "as time goes by"
    noted(history, (40, 900))
    assert in_of(history, START + 40 * SLOT_MS, 4)[:3] == [None] * 3


def test_steps_are_those_of_every_broker() -> None:
    history = noted(DayHistory(["in"]), *((slot, 100 * slot) for slot in range(13)))
    now = START + 12 * SLOT_MS
    cut = history.cut(history.counters["in"], now, span_ms=DAY_MS, points=1000, peak=False)
    assert (cut.step_ms, len(cut.values)) == (9 * SLOT_MS, 960)
    assert cut.from_ms % cut.step_ms == 0
    assert cut.from_ms + len(cut.values) * cut.step_ms > now
    assert cut.values[-3:].count(10) >= 1
    later = cut.shifted(cut.from_ms + 2 * cut.step_ms)
    assert later.values == [*cut.values[2:], None, None]
    assert later.shifted(cut.from_ms).values == [None, None, *cut.values[2:]]
    assert SeriesPart(0, 1, [5]).shifted(7).values == [None]


def test_lag_is_shown_at_its_peak_and_rates_as_they_are_on_average() -> None:
    history = DayHistory([])
    for slot, lag in enumerate((0, 90, 10)):
        now = START + slot * SLOT_MS
        history.admit(now, ["billing"])
        history.note(now, {}, {"orders": lag}, {"billing": lag})
    one = {"span_ms": 3 * SLOT_MS, "points": 1}
    lag_cut = history.cut(history.groups["billing"], START + 2 * SLOT_MS, **one, peak=True)
    assert max(filter(None, lag_cut.values)) == 90
    in_cut = history.cut(history.topics["orders"], START + 2 * SLOT_MS, **one, peak=False)
    assert in_cut.values == [5], "of nothing, 9 and 1"
    history.note(START + 3 * SLOT_MS, {}, {}, {"billing": None})
    assert not history.groups, "there is no such group any more"


def test_who_was_quiet_gives_way_and_who_is_busy_does_not() -> None:
    history = DayHistory([], series_max=2)
    history.note(START, {}, {"a": 1, "b": 1}, {})
    history.note(START + SLOT_MS, {}, {"b": 1, "c": 1}, {})
    assert set(history.topics) == {"a", "b"}, "a was used a moment ago"
    later = START + QUIET_SLOTS * SLOT_MS
    history.note(later, {}, {"b": 1, "c": 60}, {})
    assert set(history.topics) == {"b", "c"}
    assert history.has_room
    assert history.admit(later, ["x", "y", "z"]) == ["x", "y"]
    assert not history.has_room


def test_a_day_of_everything_is_less_than_two_megabytes() -> None:
    rng, history = random.Random(1), DayHistory(["in", "out", "bytes"])
    names = [f"name-{number}" for number in range(3 * SERIES_MAX)]
    for slot in range(0, 3 * SLOTS, 97):
        now = START + slot * SLOT_MS
        history.admit(now, rng.sample(names, 20))
        grown = {name: rng.randrange(9000) for name in rng.sample(names, 20)}
        history.note(
            now, dict.fromkeys(history.counters, slot), grown, dict.fromkeys(history.groups, 9)
        )
    kept = [*history.counters.values(), *history.topics.values(), *history.groups.values()]
    assert len(kept) == 3 + 2 * SERIES_MAX
    assert sum(series.values.buffer_info()[1] * series.values.itemsize for series in kept) < 2e6
