"""What is on record of a pipeline: which of its runs may write, and how far that one says it is."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE: Final = "IMAGO_PIPELINES"
"""Of the name service's KV settings: there runs ask and tell, each pipeline under its name."""
NUMBER_MAX: Final = (1 << 63) - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProgress:
    """How far a run says it is."""

    rows: int
    """Written since the pipeline first ran."""
    lag: int
    """Messages that it knew of and had not written."""
    batch: int
    at: int
    """When, ms since 1970 by the clock of the run."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline. A run has the epoch that stood when it was started."""

    epoch: int = 0
    """Runs with a lower one are over; it only rises. 0: no run was ever allowed."""
    progress: PipelineProgress | None = None
    """As the run of this epoch told it last."""

    def to_json(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "progress": asdict(self.progress) if self.progress else None}


def is_pipeline_name(name: str) -> bool:
    """Whether a pipeline may be called so: 1 to 200 of `A-Z a-z 0-9 . _ -`, no mark first."""
    return bool(_NAME.fullmatch(name))


def read_progress(value: Mapping[str, Any]) -> PipelineProgress:
    """Return the progress in a JSON object. ValueError names what is wrong with it."""
    return PipelineProgress(
        **{name: read_number(value, name) for name in ("rows", "lag", "batch", "at")}
    )


def read_number(value: Mapping[str, Any], name: str) -> int:
    """Return a whole number, not negative, of 63 bits at most. ValueError: it is none."""
    number = value.get(name)
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= NUMBER_MAX:
        return number
    raise WrongError(f"{name}: {number!r:.40} is no whole number from 0 to {NUMBER_MAX}")
