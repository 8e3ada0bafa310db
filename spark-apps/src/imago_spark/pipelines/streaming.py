"""One run of a stream into a table, from start to exit code: ingest and parse."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import time
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from imago_spark.errors import FencedError, SourceError
from imago_spark.pipelines.application import EXIT_FAILED, EXIT_FENCED, EXIT_USAGE, ended
from imago_spark.pipelines.landing import Landing, start
from imago_spark.pipelines.late_workers import run_stream
from imago_spark.pipelines.ranges.range_landing import run_ranges
from imago_spark.pipelines.reports import Fence, Reports
from imago_spark.pipelines.tables.contract import INGEST, claim
from imago_spark.pipelines.tables.object_table import ObjectTable
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from imago_spark.pipelines.landing import Shape
    from imago_spark.pipelines.settings import IngestSettings

log = logging.getLogger(__name__)

BATCH_SECONDS_MAX: Final = 60
"""How long a batch may go on after SIGTERM; it is dropped then, and the next run does it again."""
LOOK_SECONDS: Final = 1


class StopSignal:
    """Whether SIGTERM or SIGINT arrived."""

    def __init__(self) -> None:
        self.asked = False

    def install(self) -> None:
        """Handle the signals from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def wait(self, seconds: float) -> bool:
        """Wait for so long, or less if a signal arrives; return whether one has."""
        deadline = time.monotonic() + seconds
        while not self.asked and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
        return self.asked

    def _note(self, number: int, _: object) -> None:
        self.asked = True
        log.info("signal %d: stopping after the batch", number)


def run(settings: IngestSettings, open_session: Callable[[], SparkSession], shape: Shape) -> int:
    """Run until nothing is left to do, or SIGTERM; return the exit code."""
    if settings.by_ranges and shape.application != INGEST:
        return ended(EXIT_USAGE, f'config.landing: {shape.application} needs rows: "stream"')
    stop, fence = StopSignal(), Fence(settings)
    stop.install()
    table = table_of(settings)
    try:
        fence()  # before Spark is there: a run that is over shall not even start
        spark = open_session()
        try:
            if isinstance(table, TableWriter):  # one in a bucket can only be ingest's
                claim(table, shape.application, shape.fields)
            table.begin()
            landing = Landing(table, fence, settings, shape)
            if settings.by_ranges:
                reports = Reports(settings)
                run_ranges(spark, settings, landing, stop, lambda: _tell(reports, landing))
            else:
                land(spark, settings, landing, stop)
        finally:
            spark.stop()
    except FencedError as error:
        return ended(EXIT_FENCED, f"this run is over: {error}")
    except (SourceError, PySparkException, Py4JError) as error:
        return ended(EXIT_FAILED, str(error))
    last = table.last
    told = {"rows": last.rows, "damaged": last.damaged, "batch": last.batch}
    if shape.fields:
        told["rejected"] = landing.rejected
    print(json.dumps(told), flush=True)
    return 0


def table_of(settings: IngestSettings) -> TableWriter | ObjectTable:
    """Return the table that a run of these settings writes to."""
    if settings.bucket is not None:
        return ObjectTable(settings.path, settings.bucket, epoch=settings.epoch)
    return TableWriter(settings.path, epoch=settings.epoch, delta=settings.delta)


def land(spark: SparkSession, settings: IngestSettings, landing: Landing, stop: StopSignal) -> None:
    """Run a stream into a table whose run has begun, until it ends; report its progress."""
    reports = Reports(settings)
    run_stream(
        lambda: _run_query(spark, settings, landing, reports, stop),
        lambda: landing.table.last,
        may_again=lambda: not stop.asked,
    )
    _tell(reports, landing)


def _run_query(
    spark: SparkSession,
    settings: IngestSettings,
    landing: Landing,
    reports: Reports,
    stop: StopSignal,
) -> None:
    query = start(spark, settings, landing)
    try:
        _watch(query, settings, landing, reports, stop)
    except StreamingQueryException as error:
        if landing.failed is not None:  # in our words, not in a trace of Spark's
            raise landing.failed from error
        if FencedError.__name__ in str(error):  # the source was told first
            raise FencedError(settings.pipeline or "") from error
        raise
    finally:
        query.stop()


def _watch(
    query: StreamingQuery,
    settings: IngestSettings,
    landing: Landing,
    reports: Reports,
    stop: StopSignal,
) -> None:
    """Return when the query has ended or should stop; report progress meanwhile."""
    told_at = 0.0
    while not stop.asked and not query.awaitTermination(LOOK_SECONDS):
        if time.monotonic() - told_at >= settings.progress_s:
            told_at = time.monotonic()
            _tell(reports, landing)
    deadline = time.monotonic() + BATCH_SECONDS_MAX
    while landing.busy and time.monotonic() < deadline:
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination(LOOK_SECONDS)


def _tell(reports: Reports, landing: Landing) -> None:
    try:
        reports.tell(landing.table.last)
    except FencedError:
        raise
    except SourceError as error:
        log.warning("progress was not told: %s", error)
