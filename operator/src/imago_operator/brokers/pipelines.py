"""Pipelines over brokers' HTTP: the PipelinesPort."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from imago_operator.pipelines.state import PipelineRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_operator.brokers.http import BrokerCalls


class Pipelines:
    """The brokers of one cluster, as `pipelines.port.PipelinesPort` describes them."""

    def __init__(self, calls: BrokerCalls) -> None:
        self._calls = calls

    async def record(self, brokers: Sequence[str], name: str) -> PipelineRecord:
        return record_of(await self._calls.get_at_any(brokers, _path(name)))

    async def raise_pipeline(
        self, brokers: Sequence[str], name: str, epoch: int, *, operator_epoch: int
    ) -> None:
        path, body = f"{_path(name)}/epoch", {"epoch": epoch}
        await self._calls.change_at_any("POST", brokers, path, body, epoch=operator_epoch)


def record_of(answer: Mapping[str, Any]) -> PipelineRecord:
    """Return what a broker says of a pipeline."""
    progress = answer.get("progress") or {}
    at = progress.get("at")
    return PipelineRecord(
        epoch=answer["epoch"],
        rows=progress.get("rows"),
        lag=progress.get("lag"),
        batch=progress.get("batch"),
        at=None if at is None else _moment(at),
    )


def _moment(ms: int) -> datetime | None:
    """Return a moment by the clock of a run; None: no calendar has it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _path(name: str) -> str:
    return f"/admin/v1/pipelines/{quote(name, safe='')}"
