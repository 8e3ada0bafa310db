"""`imago doctor`: parts of the brokers' logs that are out of service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_cli.doctor.checks import CheckFinding, CheckLevel
from imago_wire.errors import in_our_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PLACES = ("config/damage", "*/config/damage", "*/*/config/damage")
CURE = (
    "check the disk first (smartctl, dmesg), then at docs/admin.md, Damage: the files come back "
    "from another copy; until then everything else is served"
)


def check_damage(folder: Path) -> Iterator[CheckFinding]:
    """What the brokers below a folder have noted, running or not."""
    from imago_log.commitlog.damage import decode_ranges

    found = {path for place in _PLACES for path in folder.glob(place)}
    notes = sorted(path for path in found if "set-aside" not in path.parts)
    for path in notes:
        try:
            ranges = decode_ranges(path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError) as error:
            told = f"{path} cannot be read: {in_our_words(error)}"
            yield CheckFinding(
                "log", CheckLevel.WARNING, told, "none needed: the next start writes it anew"
            )
            continue
        size = sum(end - start for start, end, _, _ in ranges)
        first = f"from log offset {ranges[0][0]} on: {ranges[0][3]}" if ranges else ""
        told = (
            f"{path.parents[1]}: {len(ranges)} parts of the log are damaged, {size} bytes, {first}"
        )
        yield CheckFinding("log", CheckLevel.ERROR, told, CURE)
    if not notes:
        yield CheckFinding("log", CheckLevel.OK, "no part of a log here is known to be damaged")
