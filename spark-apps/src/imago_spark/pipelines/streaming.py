"""One run of the ingest application, from start to exit code."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from imago_spark.errors import FencedError, SourceError
from imago_spark.pipelines.landing import Landing, start
from imago_spark.pipelines.reports import Fence, Reports
from imago_spark.pipelines.table import TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from imago_spark.pipelines.settings import IngestSettings

log = logging.getLogger(__name__)

EXIT_FAILED: Final = 1
EXIT_FENCED: Final = 5
BATCH_SECONDS_MAX: Final = 60
"""How long a batch may go on after SIGTERM; it is dropped then, and the next run does it again."""
LOOK_SECONDS: Final = 1
WORKER_LATE: Final = "Python worker failed to connect back"
"""What Spark says of a Python that it started on the driver and waited ten seconds for.

No setting changes the ten seconds, and a busy machine needs more of them now and then.
"""
STARTS_MAX: Final = 5
"""How often in a row a run starts its stream and writes nothing, before it fails."""
LAST_WORDS: Final = Path("/dev/termination-log")
LAST_WORDS_SIZE_MAX: Final = 1000


class StopSignal:
    """Whether SIGTERM or SIGINT arrived."""

    def __init__(self) -> None:
        self.asked = False

    def install(self) -> None:
        """Handle the signals from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        self.asked = True
        log.info("signal %d: stopping after the batch", number)


def run(settings: IngestSettings, open_session: Callable[[], SparkSession]) -> int:
    """Run until nothing is left to do, or SIGTERM; return the exit code."""
    stop, fence = StopSignal(), Fence(settings)
    stop.install()
    table = TableWriter(settings.path, epoch=settings.epoch)
    try:
        fence()  # before Spark is there: a run that is over shall not even start
        spark = open_session()
        try:
            table.begin()
            _run(spark, settings, Landing(table, fence, skips_lost=settings.skips_lost), stop)
        finally:
            spark.stop()
    except FencedError as error:
        return _ended(EXIT_FENCED, f"this run is over: {error}")
    except (SourceError, PySparkException, Py4JError) as error:
        return _ended(EXIT_FAILED, str(error))
    last = table.last
    print(json.dumps({"rows": last.rows, "damaged": last.damaged, "batch": last.batch}), flush=True)
    return 0


def _ended(code: int, why: str) -> int:
    """Report the cause, also to Kubernetes' termination log; return the exit code."""
    log.error("%s", why)
    if LAST_WORDS.exists():
        with contextlib.suppress(OSError):
            LAST_WORDS.write_text(why.strip()[:LAST_WORDS_SIZE_MAX], encoding="utf-8")
    return code


def _run(spark: SparkSession, settings: IngestSettings, landing: Landing, stop: StopSignal) -> None:
    reports = Reports(settings)
    late = 0
    while True:
        before = landing.table.last
        try:
            _run_query(spark, settings, landing, reports, stop)
            break
        except PySparkException as error:
            late = late + 1 if landing.table.last == before else 1
            if late == STARTS_MAX or stop.asked or WORKER_LATE not in str(error):
                raise
            log.warning("%s: starting the stream again from its checkpoint", WORKER_LATE)
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
        if landing.fenced is not None:
            raise landing.fenced from error
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
