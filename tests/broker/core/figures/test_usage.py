"""Growth of counters within a minute, an hour and a day."""

from __future__ import annotations

import random

import pytest

from imago_broker.core.figures.usage import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SPANS,
    CounterHistory,
    CounterMark,
)

START = 1_700_000_000_000


def test_growth_is_that_of_the_span() -> None:
    history = CounterHistory(CounterMark(START, 0, 0))
    for second in range(0, 7200, 10):
        history.note(START + second * 1000, second, second // 10)
    minute, hour, day = history.growth(START + 7190 * 1000)
    assert (minute.total, minute.times) == (60, 6)
    assert minute.per_second == 1.0
    assert minute.each == 10.0
    assert 3600 <= hour.total <= 3600 + 600
    assert day.total == 7190
    assert day.per_second == 1.0


def test_a_counter_that_stands_still_needs_no_mark() -> None:
    history = CounterHistory(CounterMark(START, 0, 0))
    history.note(START + 10_000, 100, 10)
    assert [one.total for one in history.growth(START + 10_000)] == [100, 100, 100]
    assert history.growth(START + 10_000)[0].per_second == 10.0
    later = START + 10_000 + MINUTE_MS
    assert [one.total for one in history.growth(later)] == [0, 100, 100]
    assert [one.total for one in history.growth(later + HOUR_MS)] == [0, 0, 100]
    assert [one.total for one in history.growth(later + DAY_MS)] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_growth_is_right_to_what_lies_between_marks(seed: int) -> None:
    """Against all values that there ever were."""
    rng = random.Random(seed)
    history = CounterHistory(CounterMark(START, 0, 0))
    values, now, total = [(START, 0)], START, 0
    for _ in range(400):
        now += rng.choice((1000, 9000, 10_000, 65_000, HOUR_MS, 3 * HOUR_MS))
        if rng.random() < 0.7:
            total += rng.randrange(1, 50)
            history.note(now, total, total)
        values.append((now, total))
        for growth, (span, apart) in zip(history.growth(now), SPANS, strict=True):

            def at(time: int) -> int:
                return [value for when, value in values if when <= max(time, START)][-1]

            assert total - at(now - span) <= growth.total <= total - at(now - span - apart)
            assert growth.per_second >= 0


def test_marks_are_few() -> None:
    history = CounterHistory(CounterMark(START, 0, 0))
    for second in range(0, 3 * DAY_MS // 1000, 5):
        history.note(START + second * 1000, second + 1, 1)
    assert sum(map(len, history._rings)) < 50
