"""Times, as commands show and take them: always in UTC, and always saying so."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from imago_wire.errors import WrongError

_AGO: Final = re.compile(r"-(\d{1,9})(ms|s|m|h|d)", re.ASCII)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LATEST_MS: Final = (1 << 63) - 1
TIME_HELP: Final = "ms since 1970, an ISO 8601 time (UTC unless it names a zone), or -15m"


def moment(ms: int | None) -> str:
    """Return a time in ms since 1970 for people, empty for none."""
    return _shown(ms, "milliseconds")


def second(ms: int | None) -> str:
    """Return the same to the second."""
    return _shown(ms, "seconds")


def _shown(ms: int | None, precision: str) -> str:
    if not ms:
        return ""
    shown = datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec=precision)
    return f"{shown.removesuffix('+00:00')}Z"


def time_of(text: str, now_ms: int) -> int:
    """Return the time that a text names, in ms since 1970; ValueError: it names none."""
    if text.isascii() and text.isdecimal():
        if int(text) > _LATEST_MS:
            raise WrongError(f"{text}: no time is that late")
        return int(text)
    if ago := _AGO.fullmatch(text):
        return max(0, now_ms - int(ago[1]) * _UNITS_MS[ago[2]])
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
