"""Lines about what comes again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core import repeated_lines
from imago_broker.core.repeated_lines import AGAIN_MS, RepeatedLines
from imago_testing.virtual.clocks import ManualClock

if TYPE_CHECKING:
    import pytest


def test_a_line_is_said_at_once_then_once_a_minute_with_how_often_it_came() -> None:
    clock = ManualClock()
    lines = RepeatedLines(clock.monotonic_ms)
    assert lines.due("b1", "full") == 1
    assert [lines.due("b1", "full") for _ in range(9)] == [0] * 9
    assert lines.due("b2", "full") == 1, "another one's is said"
    clock.advance(AGAIN_MS)
    assert lines.due("b1", "full") == 10
    assert lines.due("b1", "full") == 0


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_lines, "SUBJECTS_MAX", 3)
    clock = ManualClock()
    lines = RepeatedLines(clock.monotonic_ms)
    assert [lines.due(str(number)) for number in range(5)] == [1] * 5
    assert len(lines._said) == 3
    assert [lines.due(str(number)) for number in (4, 0)] == [0, 1]
