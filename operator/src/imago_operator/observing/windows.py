"""Times in which brokers may be restarted: five fields of cron, and a duration."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from imago_operator.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from imago_operator.spec.cluster.cluster import Window

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
DURATION_MAX: Final = timedelta(days=7)
"""A longer window counts as that long."""


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five fields: its name, its least and greatest value, names for values."""

    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()

    def values(self, text: str) -> frozenset[int]:
        """Return what the field allows; ValueError says what is wrong."""
        found: set[int] = set()
        for part in text.lower().split(","):
            span, _, step = part.partition("/")
            first, last = self._span(span, stepped=bool(step))
            found.update(range(first, last + 1, self._number(step, least=1) if step else 1))
        return frozenset(found)

    def _span(self, text: str, *, stepped: bool) -> tuple[int, int]:
        if text == "*":
            return self.low, self.high
        head, dash, tail = text.partition("-")
        first = self._number(head, least=self.low)
        last = self._number(tail, least=first) if dash else (self.high if stepped else first)
        return first, last

    def _number(self, text: str, *, least: int) -> int:
        if text in self.words:
            return self.words.index(text) + self.low
        if not text.isdecimal() or not least <= int(text) <= self.high:
            raise ValueError(f"{self.name}: {text!r:.20} is not within {least} and {self.high}")
        return int(text)


MINUTE, HOUR = Field("minute", 0, 59), Field("hour", 0, 23)
DAY, MONTH = Field("day of the month", 1, 31), Field("month", 1, 12, MONTHS)
WEEKDAY = Field("day of the week", 0, 7, DAYS)
"""0 and 7 are Sunday."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Moments of cron, by minute."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    """Both days are restricted: cron then takes a day that fits either."""

    def on(self, moment: datetime) -> bool:
        """Whether the day of a moment is one of the schedule's."""
        if moment.month not in self.months:
            return False
        by_date = moment.day in self.days
        by_weekday = moment.isoweekday() % 7 in self.weekdays
        return (by_date or by_weekday) if self.either else (by_date and by_weekday)


def schedule_of(text: str) -> Schedule:
    """Read `minute hour day month weekday`; ValueError says what is wrong."""
    minute, hour, day, month, weekday = text.split()
    return Schedule(
        MINUTE.values(minute),
        HOUR.values(hour),
        DAY.values(day),
        MONTH.values(month),
        frozenset(number % 7 for number in WEEKDAY.values(weekday)),
        either=day != "*" and weekday != "*",
    )


def is_open(windows: Iterable[Window], now: datetime) -> tuple[bool, str]:
    """Return whether now lies in one of the windows, and what is wrong with others of them.

    Where there are none, any time is good. One that cannot be read is never open.
    """
    found, problems = [], []
    for window in windows:
        try:
            found.append(_is_open(window, now))
        except InvalidError as error:
            problems.append(str(error))
    return any(found) or not (found or problems), "; ".join(problems)


def _is_open(window: Window, now: datetime) -> bool:
    where = "spec.updatePolicy.windows"
    try:
        schedule = schedule_of(window.schedule)
    except ValueError as error:
        raise InvalidError(f"{where}: schedule {window.schedule!r}: {error}") from error
    try:
        zone = ZoneInfo(window.time_zone)
    except (ValueError, ZoneInfoNotFoundError, OSError) as error:
        text = f"timeZone {window.time_zone!r} is not known here, as Europe/Berlin would be"
        raise InvalidError(f"{where}: {text}") from error
    local = now.astimezone(zone).replace(second=0, microsecond=0)
    lasts = min(timedelta(seconds=window.duration.seconds), DURATION_MAX)
    days = range(lasts.days + 2)
    return any(_began(schedule, local - timedelta(days=back), local, lasts) for back in days)


def _began(schedule: Schedule, day: datetime, now: datetime, lasts: timedelta) -> bool:
    """Whether a start of the schedule on that day is not longer ago than a window lasts."""
    if not schedule.on(day):
        return False
    for hour in schedule.hours:
        for minute in schedule.minutes:
            start = day.replace(hour=hour, minute=minute)
            if timedelta() <= now - start < lasts:
                return True
    return False
