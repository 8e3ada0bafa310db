"""The blocking face of a pipeline's run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.core.administration import pipelines

if TYPE_CHECKING:
    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.core.state import ClientState


class PipelineRun:
    """One run of a pipeline, allowed under an epoch; made by `Client.pipeline_run`.

    Both calls raise ProducerFencedError once another run was allowed: write nothing more.
    """

    def __init__(
        self, state: ClientState, driver: BlockingDriver, pipeline: str, epoch: int
    ) -> None:
        self._state, self._driver = state, driver
        self.pipeline, self.epoch = pipeline, epoch

    def check(self) -> None:
        """Return if this run may write."""
        self._driver.run(pipelines.check_run(self._state, self.pipeline, self.epoch))

    def report(self, *, rows: int, lag: int, batch: int) -> None:
        """Say how many rows there are, how many messages wait, and which batch was the last."""
        self._driver.run(
            pipelines.report_run(
                self._state, self.pipeline, self.epoch, rows=rows, lag=lag, batch=batch
            )
        )
