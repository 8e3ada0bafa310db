"""Five fields of cron, and how long a window lasts."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime
from pathlib import Path

import pytest

from imago_operator.errors import InvalidError
from imago_operator.observing.windows import is_open, last_time
from imago_operator.spec.cluster.cluster import Window
from imago_operator.spec.schema.values import Duration

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 3, 4, 2, tzinfo=UTC)
BERLIN = "Europe/Berlin"

# schedule, duration, zone, moment, open
CASES = [
    ("0 2 * * *", "2h", "UTC", "2026-03-04T02:00:00+00:00", True),
    ("0 2 * * *", "2h", "UTC", "2026-03-04T03:59:59+00:00", True),
    ("0 2 * * *", "2h", "UTC", "2026-03-04T04:00:00+00:00", False),
    ("0 2 * * *", "2h", "UTC", "2026-03-04T01:59:59+00:00", False),
    ("30 23 * * *", "2h", "UTC", "2026-03-05T00:30:00+00:00", True),  # over midnight
    ("0 22 * * sat", "36h", "UTC", "2026-03-09T09:00:00+00:00", True),  # Monday
    ("0 22 * * sat", "36h", "UTC", "2026-03-09T10:00:00+00:00", False),
    ("0 2 * * *", "1h", BERLIN, "2026-01-15T01:30:00+00:00", True),
    ("0 2 * * *", "1h", BERLIN, "2026-07-15T00:30:00+00:00", True),  # summer time
    ("0 2 * * *", "1h", BERLIN, "2026-07-15T01:30:00+00:00", False),
    ("*/15 * * * *", "5m", "UTC", "2026-03-04T09:47:00+00:00", True),
    ("*/15 * * * *", "5m", "UTC", "2026-03-04T09:51:00+00:00", False),
    ("0 0 1 jan,jul *", "1h", "UTC", "2026-07-01T00:10:00+00:00", True),
    ("0 0 13 * fri", "1h", "UTC", "2026-03-20T00:10:00+00:00", True),  # a Friday, not the 13th
    ("0 0 13 * fri", "1h", "UTC", "2026-04-13T00:10:00+00:00", True),  # the 13th, a Monday
    ("0 0 13 * fri", "1h", "UTC", "2026-04-14T00:10:00+00:00", False),
    ("0 4 * * 7", "1h", "UTC", "2026-03-08T04:10:00+00:00", True),  # 7 is Sunday
    ("30 1 * * *", "2h", BERLIN, "2026-10-25T01:29:00+00:00", True),  # two hours over one change
    ("30 1 * * *", "2h", BERLIN, "2026-10-25T01:31:00+00:00", False),
]


@pytest.mark.parametrize(("schedule", "lasts", "zone", "moment", "expected"), CASES)
def test_windows(schedule: str, lasts: str, zone: str, moment: str, expected: bool) -> None:
    window = Window(schedule=schedule, duration=Duration(lasts), time_zone=zone)
    assert is_open([window], datetime.fromisoformat(moment)) == (expected, "")


def test_without_windows_any_time_is_good() -> None:
    assert is_open([], NOW) == (True, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("60 * * * *", "Bad minute"),
        ("* 24 * * *", "Bad hour"),
        ("* * 0 * *", "Bad day-of-month"),
        ("a * * * *", "Bad minute"),
        ("5-1 * * * *", "Bad minute"),
        ("0 0 30 2 *", "Bad day-of-month"),
        ("* * * *", "Wrong number"),
    ],
)
def test_what_is_no_time_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        last_time(text, "UTC", NOW)
    window = Window(schedule=text, duration=Duration("1h"))
    opened, problem = is_open([window], NOW)
    assert not opened
    assert repr(text) in problem


def test_an_unknown_zone_is_refused() -> None:
    window = Window(schedule="0 0 * * *", duration=Duration("1h"), time_zone="Mars/Olympus")
    opened, problem = is_open([window], NOW)
    assert not opened
    assert "Mars/Olympus" in problem


def test_one_that_cannot_be_read_keeps_no_other_shut() -> None:
    always = Window(schedule="* * * * *", duration=Duration("1h"))
    wrong = Window(schedule="0 25 * * *", duration=Duration("1h"))
    assert is_open([wrong, always], NOW)[0]


def test_zones_are_there_without_those_of_a_system() -> None:
    """The operator's image has no /usr/share/zoneinfo of its own to rely on."""
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(())
    try:
        assert zoneinfo.ZoneInfo.no_cache(BERLIN).key == BERLIN
    finally:
        zoneinfo.reset_tzpath(before)
    pinned = (ROOT / "requirements/operator.txt").read_text()
    assert "tzdata==" in pinned
