"""Quantities and durations as Kubernetes writes them, and what they stand for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]{1,3})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
"""Sizes only: no sign, no exponent, no parts of a byte. Part of the form of Kubernetes."""
DURATION_PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
"""Durations as Go and CEL read them, without the units that nobody needs here."""
TEXT_SIZE_MAX: Final = 20

_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "Pi": 1 << 50,
}
_SECONDS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A size in bytes, as it was written."""

    text: str

    def __post_init__(self) -> None:
        if not re.fullmatch(QUANTITY_PATTERN, self.text, re.ASCII):
            raise ValueError(f"{self.text!r:.40} is no quantity, like 100Gi")

    @property
    def bytes(self) -> int:
        number = self.text.rstrip("kMGTPi")
        return int(Decimal(number) * _UNITS[self.text[len(number) :]])


@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time, as it was written."""

    text: str

    def __post_init__(self) -> None:
        if not re.fullmatch(DURATION_PATTERN, self.text, re.ASCII):
            raise ValueError(f"{self.text!r:.40} is no duration, like 30s or 1h30m")

    @property
    def seconds(self) -> float:
        parts = re.findall(r"([0-9.]+)(ms|s|m|h)", self.text, re.ASCII)
        return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in parts))
