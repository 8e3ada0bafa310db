"""Effects that failed, noted on disk: the same one at each start is a member that stays away.

The note outlives the process, which ends with each failure; it goes when the member is in sync or
leads. A note that cannot be read or written counts as none: the failure itself is told anyway.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from imago_wire.errors import WrongKindError

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

FAILURES_MAX = 3
"""So many equal ones, and the member says so instead of trying again."""
REASON_CHARS_MAX = 300
EFFECT_KEY = "duty"
"""What the note calls the effect: its format is kept."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed last, and how often one after the other."""

    effect: str
    kind: str
    """Class of the error: its words have offsets that differ from start to start."""
    reason: str
    count: int
    since_ms: int

    @property
    def lasts(self) -> bool:
        """Whether trying again is of no use."""
        return self.count >= FAILURES_MAX

    def __str__(self) -> str:
        return f"{self.effect} failed {self.count} times, last with {self.kind}: {self.reason}"


class Failures:
    """The note of one data folder."""

    def __init__(self, path: Path) -> None:
        self.last: Failure | None = None
        self._path = path
        try:
            self.last = _read(path.read_bytes())
            self.last.lasts  # noqa: B018  a count that is no number
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as error:
            logger.warning("failures_unreadable path=%s reason=%s", path, error)
            self.last = None

    def add(self, effect: str, error: Exception, now_ms: int) -> Failure:
        """Note one more; return it with its count."""
        last, kind = self.last, type(error).__name__
        same = last is not None and (last.effect, last.kind) == (effect, kind)
        count, since_ms = (last.count + 1, last.since_ms) if same and last else (1, now_ms)
        self.last = Failure(effect, kind, str(error)[:REASON_CHARS_MAX], count, since_ms)
        self._write(json.dumps(_stored(self.last)).encode())
        return self.last

    def clear(self) -> None:
        """The member does its part again."""
        if self.last is not None:
            self.last = None
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("failures_unwritable path=%s reason=%s", self._path, error)

    def _write(self, data: bytes) -> None:
        temporary = self._path.with_suffix(".new")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            logger.warning("failures_unwritable path=%s reason=%s", self._path, error)


def _stored(failure: Failure) -> dict[str, Any]:
    fields = asdict(failure)
    return {EFFECT_KEY: fields.pop("effect"), **fields}


def _read(data: bytes) -> Failure:
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise WrongKindError(f"a {type(fields).__name__}, not an object")
    return Failure(effect=fields.pop(EFFECT_KEY, None), **fields)
