"""Latencies, rates and days, as RocketMQ's tools show them."""

from __future__ import annotations

import pytest

from imago_broker.core.figures import rates
from imago_broker.core.figures.latencies import LAST_MS, STEPS, Latencies
from imago_broker.core.figures.rates import DayTotals, RateHistory

MS = 1_000_000


def test_latencies_are_counted_by_the_tools_steps() -> None:
    latencies = Latencies()
    assert latencies.distribution().startswith("[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 ")
    assert latencies.percentile(0.99) == 0
    for ms, count in ((0, 90), (3, 5), (49, 3), (50, 1), (700, 1)):
        latencies.note(ms * MS + 1, count)
    counts = dict(each.rsplit(":", 1) for each in latencies.distribution().split(" "))
    assert [name for name, _ in STEPS] == list(counts)
    known = {"[<=0ms]": "90", "[0~10ms]": "5", "[10~50ms]": "3", "[50~100ms]": "1"}
    assert counts | known == counts
    assert (counts["[500ms~1s]"], counts["[10s~]"]) == ("1", "0")
    assert (latencies.percentile(0.9), latencies.percentile(0.99)) == (0, 50)
    assert (latencies.percentile(1.0), latencies.max_ms) == (700, 700)


def test_what_takes_for_ever_is_counted_together() -> None:
    latencies = Latencies()
    for ms in range(LAST_MS - 1, LAST_MS + 1000, 7):
        latencies.note(ms * MS, 1)
    assert len(latencies._by_ms) <= 3
    assert latencies.distribution().endswith("[5~10s]:1 [10s~]:142")


def test_rates_are_of_the_last_seconds_and_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    history = RateHistory()
    assert history.rates(0) == (0.0, 0.0, 0.0)
    total = 0
    for second in range(700):
        history.note(second * 1000, (second, total))
        total += 100 if second >= 640 else 0
    assert history.rates(0) == pytest.approx((1.0, 1.0, 1.0))
    assert history.rates(1) == pytest.approx((100.0, 5900 / 60, 5900 / 600))
    history.note(0, (0, 0))  # a clock that goes back
    assert history.rates(0) == (0.0, 0.0, 0.0)
    monkeypatch.setattr(rates, "SAMPLES_MAX", 3)
    short = RateHistory()
    for second in range(9):
        short.note(second * 1000, (second * second,))
    assert short.rates(0) == pytest.approx((14.0, 14.0, 14.0))


def test_days_begin_with_what_was_counted_before() -> None:
    days = DayTotals()
    for day, total in ((5, 0), (5, 10), (6, 12), (6, 40), (7, 41)):
        days.note(day, total)
    assert (days.yesterday_morning, days.today_morning) == (12, 41)
