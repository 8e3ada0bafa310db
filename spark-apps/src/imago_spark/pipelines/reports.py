"""Report the progress of a run: in the pipeline's record, and as offsets of a group.

The record (`GET /admin/v1/pipelines/{name}`) holds the table's rows and the lag. The group holds
the table's committed offsets, so that every tool shows its lag; nobody reads from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.blocking import Client
from imago_client.config import ClientConfig, parse_addresses
from imago_client.errors import ClientError, ProducerFencedError
from imago_spark.access_options import read_access
from imago_spark.broker import TopicBrokers, client_of
from imago_spark.errors import FencedError, SourceError
from imago_spark.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_client.blocking.rocketmq.pipelines import PipelineRun
    from imago_client.message_queue import MessageQueue
    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.commits import Commit


class Fence:
    """Asks whether this run may write; for one thread, with connections of its own."""

    def __init__(self, settings: IngestSettings) -> None:
        self._run: PipelineRun | None = None
        if settings.pipeline is not None:
            bootstrap = parse_addresses(settings.bootstrap)
            client = Client(ClientConfig(bootstrap=bootstrap, **read_access({})))
            self._run = client.pipeline_run(settings.pipeline, settings.epoch)

    def __call__(self) -> None:
        """Return if it may. FencedError: another run may; SourceError: no broker answers."""
        if self._run is None:
            return
        try:
            self._run.check()
        except ProducerFencedError as error:
            raise FencedError(error.remark) from error
        except ClientError as error:
            raise SourceError(f"whether this run may write: {error}") from error


class Reports:
    """Reports the table's progress; for one thread."""

    def __init__(self, settings: IngestSettings) -> None:
        self._settings = settings
        self._options = parse_options(settings.source_options())
        self._told: dict[MessageQueue, int] = {}

    def tell(self, commit: Commit) -> None:
        """Report it. FencedError: another run may write; SourceError: no broker accepts it now."""
        try:
            lag = self._lag(commit.ends)
            self._tell_group(commit.ends)
            self._tell_record(commit, lag)
        except ProducerFencedError as error:
            raise FencedError(error.remark) from error
        except ClientError as error:
            raise SourceError(f"progress: {error}") from error

    def _lag(self, ends: Mapping[MessageQueue, int]) -> int:
        brokers = TopicBrokers(self._options)
        latest = brokers.latest(brokers.queues())
        new = [queue for queue in latest if queue not in ends]
        first = latest if self._settings.from_latest else brokers.earliest(new)
        return sum(
            max(0, end - ends.get(queue, first.get(queue, end))) for queue, end in latest.items()
        )

    def _tell_group(self, ends: Mapping[MessageQueue, int]) -> None:
        if self._settings.group is None:
            return
        client = client_of(self._options)
        consumer = client.pull_consumer(self._settings.group)
        for queue, end in ends.items():
            if self._told.get(queue) != end:
                consumer.commit(queue, end)
                self._told[queue] = end

    def _tell_record(self, commit: Commit, lag: int) -> None:
        if self._options.run is None:
            return
        client = client_of(self._options)
        run = client.pipeline_run(self._options.run.pipeline, self._options.run.epoch)
        run.report(rows=commit.rows, lag=lag, batch=max(0, commit.batch))
