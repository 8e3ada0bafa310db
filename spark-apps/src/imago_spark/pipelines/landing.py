"""Topics as a stream into a table: each micro-batch becomes one commit.

Spark's checkpoint records the offsets of each micro-batch, and Spark repeats an unfinished one with
the same offsets. The table records which of them are committed, and the stream skips those. A new
checkpoint continues where the table ends. So a driver may die at any moment, and the table has each
row once.
"""

from __future__ import annotations

import json
import logging
import shutil
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.broker import TopicBrokers
from imago_spark.errors import FencedError
from imago_spark.offsets import EARLIEST, LATEST, to_engine
from imago_spark.options import parse_options
from imago_spark.pipelines.footers import CHECKED, staged

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.table import TableWriter

log = logging.getLogger(__name__)

CRC_MASK = 0x7FFFFFFF
"""Both protocols' checksum is CRC-32 without its highest bit."""
_QUERY_ID = "sql.streaming.queryId"


def checked(rows: DataFrame) -> DataFrame:
    """Add the rows' date and whether the body matches its checksum.

    The checksum of a compressed body is that of its compressed form: there is nothing to compare.
    """
    is_compressed = F.col("sys_flag").bitwiseAND(1) != 0
    matches = F.crc32("value").bitwiseAND(CRC_MASK) == F.col("body_crc")
    return rows.withColumn("date", F.to_date("store_time")).withColumn(
        CHECKED, is_compressed | matches
    )


class Landing:
    """Handles each micro-batch; `may_write` raises FencedError once another run took over."""

    def __init__(
        self, table: TableWriter, may_write: Callable[[], None], *, skips_lost: bool = False
    ) -> None:
        self.table = table
        self.busy = False
        """Whether a micro-batch is on its way."""
        self.fenced: FencedError | None = None
        self._may_write, self._skips_lost = may_write, skips_lost

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.busy = True
        try:
            self._land(frame, batch)
        except FencedError as error:
            self.fenced = error
            raise
        finally:
            self.busy = False

    def _land(self, frame: DataFrame, batch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query is None:
            raise AssertionError("Spark says of each micro-batch which query it belongs to")
        if self.table.has(query, batch):
            log.info("batch %d is in the table already", batch)
            return
        attempt = self.table.stage()
        checked(frame).write.partitionBy("date").parquet(str(attempt))
        added = staged(attempt, query, batch)
        self._may_write()
        if added.files:
            made = self.table.commit(added, holes=self._skips_lost)
            log.info("batch %d: %d rows, %d in the table", batch, added.rows, made.rows)
        # Not if anything failed: what was committed may still have to be moved from there.
        shutil.rmtree(attempt, ignore_errors=True)


def start(spark: SparkSession, settings: IngestSettings, landing: Landing) -> StreamingQuery:
    """Start the stream into a table whose run has begun."""
    source = settings.source_options() | {"startingOffsets": _beginning(settings, landing.table)}
    rows = spark.readStream.format("imago").options(**source).load()
    writer = rows.writeStream.queryName("imago-ingest").foreachBatch(landing)
    writer = writer.option("checkpointLocation", settings.checkpoint)
    if settings.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.trigger_s} seconds").start()


def _beginning(settings: IngestSettings, table: TableWriter) -> str:
    """Return the beginning for a new checkpoint: the end of the table."""
    elsewhere = LATEST if settings.from_latest else EARLIEST
    queues = TopicBrokers(parse_options(settings.source_options())).queues()
    ends = {queue: table.last.ends.get(queue, elsewhere) for queue in queues}
    return json.dumps(to_engine(ends)["topics"])
