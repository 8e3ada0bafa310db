"""Durations and sizes as people write them: `90s`, `1h30m`, `7d`, `512KiB`, `10GB`.

A setting whose name says that it counts milliseconds, seconds or bytes takes them where it is
given as text. In files and over HTTP it stays a number.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DURATION: Final = "a duration such as 90s, 1h30m or 7d"
SIZE: Final = "a size such as 512KiB, 64MiB or 10GB"
_DURATION_MS: Final[Mapping[str, int]] = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_SIZE_BYTES: Final[Mapping[str, int]] = {
    "b": 1,
    **{f"{unit}ib": 1 << 10 * power for power, unit in enumerate("kmgt", 1)},
    **{f"{unit}b": 1000**power for power, unit in enumerate("kmgt", 1)},
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_LENGTH_MAX: Final = 64


def kind_of(name: str) -> str | None:
    """Return what a setting of this name takes beside a number: DURATION, SIZE or nothing."""
    words = re.split(r"[._]", name)
    if "per" in words:
        return None
    if "ms" in words or "seconds" in words:
        return DURATION
    return SIZE if "bytes" in words else None


def measured(name: str, text: str) -> int | None:
    """Return a text with units in what the setting of this name counts; None: it is none such."""
    kind = kind_of(name)
    if kind is None or len(text) > _LENGTH_MAX:
        return None
    units = _DURATION_MS if kind is DURATION else _SIZE_BYTES
    total, at = Fraction(0), 0
    wanted = text.strip().lower()
    for part in _PART.finditer(wanted):
        factor = units.get(part[2])
        if factor is None or part.start() != at:
            return None
        total, at = total + Fraction(part[1]) * factor, part.end()
    if at == 0 or at != len(wanted):
        return None
    if kind is DURATION and "seconds" in re.split(r"[._]", name):
        total /= 1000
    return int(total) if total.denominator == 1 else None
