"""Times in which brokers may be restarted: five fields of cron, and a duration."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from imago_operator.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from imago_operator.spec.cluster.cluster import Window

DURATION_MAX: Final = timedelta(days=7)
"""A longer window counts as that long."""


def is_open(windows: Iterable[Window], now: datetime) -> tuple[bool, str]:
    """Return whether now lies in one of the windows, and what is wrong with others of them.

    Where there are none, any time is good. One that cannot be read is never open.
    """
    found, problems = [], []
    for window in windows:
        lasts = min(timedelta(seconds=window.duration.seconds), DURATION_MAX)
        try:
            found.append(now - last_time(window.schedule, window.time_zone, now) < lasts)
        except InvalidError as error:
            problems.append(f"spec.updatePolicy.windows: {error}")
    return any(found) or not (found or problems), "; ".join(problems)


def last_time(schedule: str, time_zone: str, now: datetime) -> datetime:
    """Return when a schedule last was due, in UTC, now included; InvalidError: what is wrong."""
    try:
        zone = ZoneInfo(time_zone)
    except (ValueError, ZoneInfoNotFoundError, OSError) as error:
        text = f"timeZone {time_zone!r} is not known here, as Europe/Berlin would be"
        raise InvalidError(text) from error
    minute = now.astimezone(UTC).replace(second=0, microsecond=0)
    after = (minute + timedelta(minutes=1)).astimezone(zone)
    try:
        return next(CronSim(schedule, after, reverse=True)).astimezone(UTC)
    except (CronSimError, StopIteration) as error:
        text = str(error) or "it is never due"
        raise InvalidError(f"schedule {schedule!r}: {text}") from error
