"""The driver's side: plan, have tasks write, commit what they wrote; the table is the checkpoint.

Plans are those of the stream's reader, so what it says of topics that were made anew, of retention
and of shards without a broker holds here, too. Nothing but ranges and names of files goes through
Spark. A run begins where the table ends, whatever run that was.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadMaxRows

from imago_spark.errors import FencedError, SourceError
from imago_spark.options import parse_options
from imago_spark.pipelines.application import cause
from imago_spark.pipelines.landing import beginning, of_topics, topics_now
from imago_spark.pipelines.tables.footers import staged
from imago_spark.reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from imago_spark.offsets import QueueRange
    from imago_spark.options import SourceOptions
    from imago_spark.pipelines.landing import Landing
    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.bucket import LakeBucket

log = logging.getLogger(__name__)

QUERY: Final = "ranges"
"""What commits have in place of a checkpoint's id; their batch is the number of the commit."""
BATCH_ROWS: Final = 4_000_000
"""Of one commit where the settings say nothing: so much is done again by whoever comes after."""


class Stopping(Protocol):
    """Whether the run has been asked to end."""

    asked: bool

    def wait(self, seconds: float) -> bool:
        """Wait for so long, or less if it is asked to."""
        ...


def run_ranges(
    spark: SparkSession,
    settings: IngestSettings,
    landing: Landing,
    stop: Stopping,
    tell: Callable[[], None],
) -> None:
    """Land batch after batch, until SIGTERM, or with available-now what was there at the start."""
    options = parse_options(
        settings.source_options() | {"startingOffsets": beginning(settings, landing.table.last)}
    )
    reader = StreamReader(options)
    limit = ReadMaxRows(settings.rows_max or BATCH_ROWS)
    try:
        before = reader.initialOffset()
        if settings.available_now:
            reader.prepareForTriggerAvailableNow()
        told_at = time.monotonic()
        while not stop.asked:
            began = time.monotonic()
            after = reader.latestOffset(before, limit)
            if after != before:
                plan = [one for task in reader.partitions(before, after) for one in task.value]
                _land(spark, options, landing, plan)
                before = after
            elif settings.available_now:
                break
            if time.monotonic() - told_at >= settings.progress_s:
                told_at = time.monotonic()
                tell()
            if not settings.available_now:
                stop.wait(began + settings.trigger_s - time.monotonic())
    finally:
        reader.stop()
    tell()


def _land(
    spark: SparkSession, options: SourceOptions, landing: Landing, plan: Sequence[QueueRange]
) -> None:
    table, settings = landing.table, landing.settings
    attempt = table.stage()
    before = topics_now(settings)
    bucket = settings.bucket
    names = _written(spark, options, attempt, bucket, plan) if plan else []
    added = staged(attempt, QUERY, table.last.number + 1, names, bucket)
    landing.commit(of_topics(added, before, topics_now(settings)), attempt)


def _written(
    spark: SparkSession,
    options: SourceOptions,
    attempt: Path,
    bucket: LakeBucket | None,
    plan: Sequence[QueueRange],
) -> list[str]:
    """Have tasks write the ranges; return the files."""

    def write(wanted: QueueRange) -> list[str]:
        from imago_spark.pipelines.ranges.writing import write_range  # only where rows are

        return write_range(options, wanted, attempt, bucket)

    try:
        tasks = spark.sparkContext.parallelize(plan, len(plan))
        return [name for names in tasks.map(write).collect() for name in names]
    except (PySparkException, Py4JError) as error:
        if f"{FencedError.__name__}:" in str(error):
            raise FencedError(cause(error)) from error
        raise SourceError(cause(error)) from error
