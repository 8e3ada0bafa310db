"""What the operator asks of brokers about pipelines, and has them do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_operator.pipelines.state import PipelineRecord


class PipelinesPort(Protocol):
    """The brokers' HTTP, as far as it is about pipelines. Any broker of the cluster will do."""

    async def record(self, brokers: Sequence[str], name: str) -> PipelineRecord:
        """Return what is on record: GET /admin/v1/pipelines/{name}. RetryError: nobody tells."""

    async def raise_pipeline(
        self, brokers: Sequence[str], name: str, epoch: int, *, operator_epoch: int
    ) -> None:
        """End all runs of a lower epoch: POST /admin/v1/pipelines/{name}/epoch.

        BlockedError when a higher one is in force.
        """
