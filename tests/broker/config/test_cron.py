"""Cron expressions of MetaQ's deleteWhen: when they are due, and what is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.config.cron import Cron, CronError
from imago_testing.searching import examples


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("expression", "after", "due"),
    [
        ("0 0 6,18 * * ?", "2026-11-23 05:59:59", "2026-11-23 06:00:00"),
        ("0 0 6,18 * * ?", "2026-11-23 06:00:00", "2026-11-23 18:00:00"),
        ("0 0 6,18 * * ?", "2026-11-23 18:00:00", "2026-11-24 06:00:00"),
        ("*/15 * * * * ?", "2026-11-23 23:59:50", "2026-11-24 00:00:00"),
        ("30 5/20 8-9 * * ?", "2026-11-23 08:45:30", "2026-11-23 09:05:30"),
        ("0 0 0 L * ?", "2026-02-01 00:00:00", "2026-02-28 00:00:00"),
        ("0 0 0 29 FEB ?", "2026-03-01 00:00:00", "2028-02-29 00:00:00"),
        ("0 0 12 ? * MON-FRI", "2026-11-20 12:00:00", "2026-11-23 12:00:00"),
        ("0 0 12 ? * FRI-SUN", "2026-11-22 12:00:00", "2026-11-27 12:00:00"),
        ("0 0 12 ? * 6L", "2026-11-01 00:00:00", "2026-11-27 12:00:00"),
        ("0 0 12 ? * 2#1", "2026-11-23 00:00:00", "2026-12-07 12:00:00"),
        ("0 0 12 ? * L", "2026-11-23 00:00:00", "2026-11-28 12:00:00"),
        ("0 0 0 1 1 ? 2030", "2026-11-23 00:00:00", "2030-01-01 00:00:00"),
    ],
)
def test_it_is_due_at_the_next_time_that_it_names(expression: str, after: str, due: str) -> None:
    assert Cron.parse(expression).next_after(ms(after), UTC) == ms(due)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "0 fields"),
        ("0 0 6 * *", "5 fields"),
        ("0 0 6 * * *", "one of the two fields of days"),
        ("0 0 6 ? * ?", "one of the two fields of days"),
        ("60 0 6 * * ?", "second: '60', must be 0 to 59"),
        ("0 0 6 0 * ?", "day of month: '0'"),
        ("0 0 6 ? * 8", "day of week: '8'"),
        ("0 0 6 ? * 2#6", "must be like 6#3"),
        ("0 0/0 6 * * ?", "a step must be 1 or more"),
        ("0 0 6 15W * ?", "day of month: '15W'"),
        ("x 0 6 * * ?", "second: 'X'"),
        ("0 0 6 * * ? 1969", "year: '1969'"),
        ("0 " * 200, "fields"),
    ],
)
def test_what_is_none_is_refused(expression: str, message: str) -> None:
    with pytest.raises(CronError, match=message):
        Cron.parse(expression)


def test_a_day_that_never_comes_is_never_due() -> None:
    assert Cron.parse("0 0 0 30 2 ?").next_after(0, UTC) is None


def test_a_time_that_summer_time_leaves_out_still_comes() -> None:
    zone, cron = ZoneInfo("Europe/Berlin"), Cron.parse("0 30 2 * * ?")
    due, days = ms("2026-03-27 12:00:00"), []
    for _ in range(4):
        due = cron.next_after(due, zone) or 0
        days.append(datetime.fromtimestamp(due / 1000, tz=zone).day)
    assert days == [28, 29, 30, 31]


FIELD = st.sampled_from(["*", "0", "5", "*/7", "3-9", "1,30", "50-10"])


@given(second=FIELD, minute=FIELD, at=st.integers(0, 10**7))
@settings(max_examples=examples(200))
def test_the_next_time_is_the_first_that_matches(second: str, minute: str, at: int) -> None:
    cron = Cron.parse(f"{second} {minute} * * * ?")
    due = cron.next_after(at * 1000, UTC)
    moment = datetime.fromtimestamp(at, tz=UTC)
    for _ in range(2 * 3600):
        moment += timedelta(seconds=1)
        if moment.second in cron.seconds and moment.minute in cron.minutes:
            break
    assert due == int(moment.timestamp()) * 1000
