"""kill -9 under load, again and again: nothing that was acknowledged is lost, moved or repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.chaos.history import Step
from imago_testing.chaos.run import Plan, play

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.processes

KILLS = 20
PAUSE = 0.02


async def test_twenty_kills_under_load_break_no_promise(tmp_path: Path) -> None:
    plan = Plan(seed=20260, kills_max=KILLS, seconds_max=180, load_seconds=(0.3, 0.8), pause=PAUSE)
    report, history = await play(plan, tmp_path)
    print(report.text())
    assert report.violations == []
    assert report.damage == []
    assert report.kills >= KILLS
    assert report.refused == 0
    places = {(place.protocol, place.queue) for place in history.acked.values()}
    assert places == set(history.final), "every queue, so every level, through both protocols"
    told = {each.queue for each in history.progress if each.step is Step.TOLD}
    assert told == {queue for _, queue in history.final}, "every committed offset was asked for"
