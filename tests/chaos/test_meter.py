"""How a run counts what is acknowledged, and what it makes of too little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.chaos.cluster import meter
from imago_testing.chaos.cluster.report import ClusterReport

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = 1000.0
    monkeypatch.setattr(meter, "monotonic", lambda: now)

    def forward(seconds: float) -> None:
        nonlocal now
        now += seconds

    return forward


def test_longest_gap_counts_from_the_fault_on(clock: Callable[[float], None]) -> None:
    found = meter.Meter(1e9)
    for seconds in (9.0, 0.5, 2.0, 0.25):
        clock(seconds)
        found.acked(10)
    assert found.longest_gap(1009.25) == pytest.approx(2.0)
    assert found.written(1009.25) == 30
    assert found.written(1009.5) == 30
    assert found.written(1011.75) == 10


def test_producers_are_held_to_the_rate(clock: Callable[[float], None]) -> None:
    found = meter.Meter(1000)
    assert found.pause() == 0
    for _ in range(3):
        found.acked(100)
    assert found.pause() == pytest.approx(0.3)
    clock(10)
    assert found.pause() == 0
    found.acked(100)
    assert found.pause() == pytest.approx(0.1)


def test_too_low_a_rate_between_the_faults_is_a_violation() -> None:
    report = ClusterReport(seed=1)
    report.calm(10_000, 2.0)
    report.calm(2_000, 1.0)
    report.hold_against(4000.0)
    assert report.violations == []
    report.hold_against(4001.0)
    assert [each.partition(":")[0] for each in report.violations] == ["SLOW"]


def test_nothing_written_at_all_is_too_low_a_rate() -> None:
    report = ClusterReport(seed=1)
    report.hold_against(1.0)
    assert len(report.violations) == 1


def test_report_names_every_fault_with_its_gaps() -> None:
    one, other = ClusterReport(seed=1), ClusterReport(seed=2)
    one.fault("kill_leader", gap_s=1.5, whole_s=2.0, busy=0.5)
    other.fault("kill_leader", gap_s=0.5, whole_s=3.0, busy=0.25)
    other.fault("roll", gap_s=0.1, whole_s=0.2, busy=0)
    one.add(other)
    assert one.json()["gaps_ms"] == {"kill_leader": [1500, 500], "roll": [100]}
    assert one.json()["whole_ms"] == {"kill_leader": [2000, 3000], "roll": [200]}
    assert one.json()["faults"] == 3
    assert "1500 / 1500" in one.text()
    assert "3000 / 3000" in one.text()
