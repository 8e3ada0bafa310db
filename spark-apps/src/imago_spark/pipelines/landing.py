"""Topics as a stream into a table: each micro-batch becomes one commit.

Spark's checkpoint records the offsets of each micro-batch, and Spark repeats an unfinished one with
the same offsets. The table records which of them are committed, and the stream skips those. A new
checkpoint continues where the table ends. So a driver may die at any moment, and the table has each
row once.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.broker import TopicBrokers
from imago_spark.errors import DataLossError, SourceError, TableError
from imago_spark.offsets import EARLIEST, LATEST
from imago_spark.options import parse_options
from imago_spark.pipelines.tables.contract import INGEST
from imago_spark.pipelines.tables.footers import staged
from imago_spark.progress import Progress, made_anew_text
from imago_spark.schema import CHECKED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.commits import Commit, StagedBatch
    from imago_spark.pipelines.tables.object_table import ObjectTable
    from imago_spark.pipelines.tables.table import TableWriter

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


def accept(_: StagedBatch, __: Path) -> None:
    """Have nothing against a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an application makes of messages; each message stays one row."""

    application: str = INGEST
    rows: Callable[[DataFrame], DataFrame] = checked
    folders: tuple[str, ...] = ("date",)
    """Columns that name the folders of a row."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """With their types, what its rows have beside the columns of messages."""
    check: Callable[[StagedBatch, Path], None] = accept
    """Raises what keeps a batch, staged in a folder, out of the table."""


class Landing:
    """Handles each micro-batch; `may_write` raises FencedError once another run took over."""

    def __init__(
        self,
        table: TableWriter | ObjectTable,
        may_write: Callable[[], None],
        settings: IngestSettings,
        shape: Shape,
    ) -> None:
        self.table = table
        self.busy = False
        """Whether a micro-batch is on its way."""
        self.failed: SourceError | None = None
        """Why the last micro-batch did not get into the table."""
        self.rejected = 0
        self.settings = settings
        self._may_write, self._shape = may_write, shape

    @property
    def application(self) -> str:
        return self._shape.application

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.busy = True
        try:
            self._land(frame, batch)
        except SourceError as error:
            self.failed = error
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
        before = topics_now(self.settings)
        shape = self._shape
        shape.rows(frame).write.partitionBy(*shape.folders).parquet(str(attempt))
        added = of_topics(staged(attempt, query, batch), before, topics_now(self.settings))
        self.commit(added, attempt)

    def commit(self, added: StagedBatch, attempt: Path) -> None:
        """Add what was staged in a folder, if nothing is against it."""
        self._shape.check(added, attempt)
        self._check_begins(added)
        self._may_write()
        if added.files:
            made = self.table.commit(added, holes=self.settings.skips_lost)
            self.rejected += added.rejected
            log.info("batch %d: %d rows, %d in the table", added.batch, added.rows, made.rows)
        # Not if anything failed: what was committed may still have to be moved from there.
        self.table.unstage(attempt)

    def _check_begins(self, added: StagedBatch) -> None:
        """Refuse a checkpoint that had read a queue before there was this table of it."""
        settings, had = self.settings, self.table.last.ends
        new = {one.queue: one.start for one in added.landed if one.queue not in had}
        if settings.from_latest or settings.skips_lost or not new:
            return
        brokers = TopicBrokers(parse_options(settings.source_options()))
        for queue, first in brokers.earliest(new).items():
            if first < new[queue]:
                raise TableError(
                    f"{queue}: offsets {first} to {new[queue] - 1} would be missing: the checkpoint"
                    " is of another table, or the table was removed; give it a new checkpoint"
                )


def of_topics(added: StagedBatch, before: Progress, after: Progress) -> StagedBatch:
    """Note of which topics the rows are that were read between two looks at what there is.

    DataLossError: one was made anew meanwhile, so nobody can say.
    """
    for one in added.landed:
        first, second = before.incarnation(one.queue), after.incarnation(one.queue)
        if first is not None and second is not None and not first.is_same(second):
            raise DataLossError(made_anew_text(one.queue, one.end))
    return replace(
        added,
        incarnations=before.incarnations | after.incarnations,
        cluster=after.cluster or before.cluster,
    )


def topics_now(settings: IngestSettings) -> Progress:
    """Return which topics a stream of these settings reads at the moment."""
    brokers = TopicBrokers(parse_options(settings.source_options()))
    return brokers.identities(brokers.queues())


def start(spark: SparkSession, settings: IngestSettings, landing: Landing) -> StreamingQuery:
    """Start the stream into a table whose run has begun."""
    source = settings.source_options() | {
        "startingOffsets": beginning(settings, landing.table.last)
    }
    rows = spark.readStream.format("imago").options(**source).load()
    writer = rows.writeStream.queryName(f"imago-{landing.application}").foreachBatch(landing)
    writer = writer.option("checkpointLocation", settings.checkpoint)
    if settings.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.trigger_s} seconds").start()


def beginning(settings: IngestSettings, last: Commit | None) -> str:
    """Return the beginning for a new checkpoint: the end of the table, of the topics it has."""
    elsewhere = LATEST if settings.from_latest else EARLIEST
    queues = TopicBrokers(parse_options(settings.source_options())).queues()
    known = Progress(offsets={})
    if last is not None:
        had = {
            queue: end
            for queue, end in last.ends.items()
            if queue.topic in settings.topics and (queue in queues or not settings.skips_lost)
        }
        known = Progress(offsets=had, incarnations=last.incarnations, cluster=last.cluster)
    offsets = dict.fromkeys(queues, elsewhere) | known.offsets
    return json.dumps(replace(known.without(()), offsets=offsets).to_json())
