"""Times at which something is due, as MetaQ's `deleteWhen` names them: Quartz's cron expressions.

Seven fields: second, minute, hour, day of the month, month, day of the week (1 is Sunday), and a
year that may be left out. A field holds `*`, numbers, names (`JAN`, `MON`), `a-b`, `a/step`, lists
of these, `?` for "whatever the other field of days says", `L` for a month's last day, `6L` for its
last Friday, `6#3` for its third. `W` and `C` are refused. Times are those of the machine's zone.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

LENGTH_MAX: Final = 200
YEARS_AHEAD_MAX: Final = 30
"""An expression that names no day within so many years is never due."""

_MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {"SUN": 1, "MON": 2, "TUE": 3, "WED": 4, "THU": 5, "FRI": 6, "SAT": 7}


class CronError(WrongError):
    """The expression is none: what is wrong, and how it should look."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("second", 0, 59, {}),
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 1, 7, _DAYS),
    _Field("year", 1970, 2199, {}),
)
_ANY = "?"
_LAST = "L"


@dataclass(frozen=True, slots=True)
class Cron:
    """One expression. Compare by `text`."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int] | None
    """Days of the month; None: whatever `weekdays` says."""
    last_day: bool
    months: frozenset[int]
    weekdays: frozenset[int] | None
    nth_weekdays: frozenset[tuple[int, int]]
    """(day of the week, which of the month's); -1: the last."""
    years: frozenset[int]

    @classmethod
    def parse(cls, text: str, what: str = "cron expression") -> Cron:
        """Return the expression; CronError says which field of `what` is wrong."""
        try:
            return cls._parse(text)
        except CronError as error:
            raise CronError(f"{what}: {error}") from error

    @classmethod
    def _parse(cls, text: str) -> Cron:
        words = text.upper().split()
        if len(text) > LENGTH_MAX or len(words) not in (6, 7):
            raise CronError(
                f"{text!r:.80}: {len(words)} fields, must be like `0 0 6,18 * * ?`: second, minute,"
                " hour, day of month, month, day of week, and a year if need be"
            )
        if (words[3] == _ANY) == (words[5] == _ANY):
            raise CronError(f"{text!r}: one of the two fields of days must be `?`, and only one")
        days, last_day = _month_days(words[3])
        weekdays, nth = _week_days(words[5])
        return cls(
            text=text,
            seconds=tuple(sorted(_numbers(words[0], 0))),
            minutes=tuple(sorted(_numbers(words[1], 1))),
            hours=tuple(sorted(_numbers(words[2], 2))),
            days=days,
            last_day=last_day,
            months=frozenset(_numbers(words[4], 4)),
            weekdays=weekdays,
            nth_weekdays=nth,
            years=frozenset(_numbers(words[6] if len(words) == 7 else "*", 6)),
        )

    def next_after(self, ms: int, zone: tzinfo | None = None) -> int | None:
        """Return the first time after `ms` (since 1970) that is named; None: there is none.

        `zone`: the machine's, unless given.
        """
        start = datetime.fromtimestamp(ms // 1000 + 1, tz=UTC).astimezone(zone)
        day, time = start.date(), (start.hour, start.minute, start.second)
        end = day + timedelta(days=366 * YEARS_AHEAD_MAX)
        while day < end:
            if not self._names_month(day):
                day, time = _next_month(day), (0, 0, 0)
                continue
            found = self._time_from(*time) if self._names_day(day) else None
            if found is not None:
                moment = datetime(day.year, day.month, day.day, *found)  # noqa: DTZ001  its zone below
                at = moment.replace(tzinfo=zone) if zone else moment.astimezone()
                # A time that the change to summer time leaves out is the moment of the change.
                return max(int(at.timestamp()) * 1000, ms + 1)
            day, time = day + timedelta(days=1), (0, 0, 0)
        return None

    def _names_month(self, day: date) -> bool:
        return day.month in self.months and day.year in self.years

    def _names_day(self, day: date) -> bool:
        length = calendar.monthrange(day.year, day.month)[1]
        if self.days is not None:
            return day.day in self.days or (self.last_day and day.day == length)
        weekday = day.isoweekday() % 7 + 1
        if self.weekdays is not None and weekday in self.weekdays:
            return True
        which = {(day.day - 1) // 7 + 1} | ({-1} if day.day + 7 > length else set())
        return any((weekday, each) in self.nth_weekdays for each in which)

    def _time_from(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        first = self.hours[0], self.minutes[0], self.seconds[0]
        if (later := _from(self.hours, hour)) is None:
            return None
        if later > hour:
            return later, first[1], first[2]
        if (at := _from(self.minutes, minute)) is not None:
            if at > minute:
                return hour, at, first[2]
            if (exact := _from(self.seconds, second)) is not None:
                return hour, minute, exact
            if (at := _from(self.minutes, minute + 1)) is not None:
                return hour, at, first[2]
        later = _from(self.hours, hour + 1)
        return None if later is None else (later, first[1], first[2])


def cron_pattern() -> str:
    """Return an expression that matches what `Cron.parse` takes, whatever the case of letters."""
    plain = [_list(_part(each)) for each in _FIELDS]
    days = _list(f"{_part(_FIELDS[3])}|L")
    week = _numbers_pattern(_FIELDS[5])
    weekdays = _list(f"{_part(_FIELDS[5])}|({week})L|L|({week})#[1-5]")
    either = f"({days}\\s+({plain[4]})\\s+\\?|\\?\\s+({plain[4]})\\s+{weekdays})"
    first = "\\s+".join(f"({each})" for each in plain[:3])
    size = f"(?=[\\s\\S]{{0,{LENGTH_MAX}}}$)"
    return f"{size}\\s*{first}\\s+{either}(\\s+({plain[6]}))?\\s*"


def _list(part: str) -> str:
    return f"({part})(,({part}))*"


def _part(wanted: _Field) -> str:
    number = _numbers_pattern(wanted)
    return f"([*]|({number})(-({number}))?)(/0*[1-9][0-9]*)?"


def _numbers_pattern(wanted: _Field) -> str:
    """Return what a number of a field looks like, with as many zeros in front as are read."""
    last_digits: dict[str, str] = {}
    for number in map(str, range(wanted.low, wanted.high + 1)):
        last_digits[number[:-1]] = last_digits.get(number[:-1], "") + number[-1]
    firsts: dict[tuple[int, str], list[str]] = {}
    for first, last in last_digits.items():
        firsts.setdefault((len(first), f"[{last[0]}-{last[-1]}]"), []).append(first)
    words = [f"0{{0,{4 - size}}}({'|'.join(each)}){last}" for (size, last), each in firsts.items()]
    return "|".join([*words, *wanted.names])


def _from(numbers: tuple[int, ...], low: int) -> int | None:
    at = bisect_left(numbers, low)
    return numbers[at] if at < len(numbers) else None


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


def _month_days(word: str) -> tuple[frozenset[int] | None, bool]:
    if word == _ANY:
        return None, False
    parts = word.split(",")
    plain = [part for part in parts if part != _LAST]
    days = _numbers(",".join(plain), 3) if plain else set()
    return frozenset(days), len(plain) < len(parts)


def _week_days(word: str) -> tuple[frozenset[int] | None, frozenset[tuple[int, int]]]:
    if word == _ANY:
        return None, frozenset()
    days: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for part in word.split(","):
        day, hash_sign, which = part.partition("#")
        if hash_sign:
            if which not in ("1", "2", "3", "4", "5"):
                raise CronError(f"day of week: {part!r:.40}, must be like 6#3")
            nth.add((_number(day, 5), int(which)))
        elif part != _LAST and part.endswith(_LAST):
            nth.add((_number(part[:-1], 5), -1))
        else:
            days |= _numbers("7" if part == _LAST else part, 5)
    return frozenset(days), frozenset(nth)


def _numbers(word: str, field: int) -> set[int]:
    numbers: set[int] = set()
    for part in word.split(","):
        numbers |= _range(part, field)
    return numbers


def _range(part: str, field: int) -> set[int]:
    """Return the numbers of one part of a list; a range may go over the field's end (FRI-MON)."""
    low, high = _FIELDS[field].low, _FIELDS[field].high
    span, slash, step_word = part.partition("/")
    if slash and not (step_word.isascii() and step_word.isdecimal() and int(step_word)):
        raise CronError(f"{_FIELDS[field].name}: {part!r:.40}, a step must be 1 or more")
    step = int(step_word) if slash else 1
    first, dash, last = span.partition("-")
    if span == "*":
        return set(range(low, high + 1, step))
    start = _number(first, field)
    end = _number(last, field) if dash else (high if slash else start)
    if end >= start:
        return set(range(start, end + 1, step))
    size = high - low + 1
    return {(each - low) % size + low for each in range(start, end + size + 1, step)}


def _number(word: str, field: int) -> int:
    wanted = _FIELDS[field]
    if word in wanted.names:
        return wanted.names[word]
    number = int(word) if word.isascii() and word.isdecimal() and len(word) < 6 else -1
    if not wanted.low <= number <= wanted.high:
        raise CronError(f"{wanted.name}: {word!r:.40}, must be {wanted.low} to {wanted.high}")
    return number
