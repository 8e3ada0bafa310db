"""Windows per key over a table of parse become a table of figures, and messages if wanted.

    python -m imago_spark.pipelines.aggregate --config FILE [--epoch N] [--dry-run]

The configuration is that of ingest (`pipelines.settings`), without `checkpoint`: the table of
figures is `path`, and `topics` are those of the input whose rows count. In its part `[config]`:

    input = "/lake/orders-parsed"     # the table that is read, of parse or of ingest; unless given,
                                      # the topics themselves, and then there is a checkpoint
    schema = "id bigint, at timestamp"    # of messages of topics, and all else that parse has
    by = "customer"                   # the key: columns, joined with commas
    time = "at"                       # when it was: a timestamp; default store_time
    window = "5m"                     # s, m, h or d; windows begin with the day, in UTC
    delay = "10m"                     # how late an event may come
    measures = "count, sum(amount), max(amount)"    # count, sum, min, max, avg
    topic = "orders-5m"               # where figures go, too; unless given, nowhere

A row has window_start, window_end, the key and the measures. It is written once, when its window is
closed: when an event is newer than the window's end by `delay`. What comes after that is counted as
`late`, and an event without a time as `untimed`; both are in no window. A sum that is too large for
its type is null (`overflowed`), and a figure that cannot be a message is in the table alone
(`unsent`). Where rows went before their window was closed, or the input was made anew, a run fails;
`onDataLoss = "skip"` goes on without these rows.

A pass reads what the input has new, and commits figures together with how far it has read: whatever
dies in between, each row of the input counts once. Figures for the topic are read back from their
commit and sent as one batch of a sink, so that brokers take each once.

With `trigger = "continuous"` there is a pass every triggerSeconds, until SIGTERM; with
`available-now` there is one. `--dry-run` writes and sends nothing, and prints what a pass would do.
Without it the run prints one line of JSON at its end.

Exit codes: 0 done, 1 failed, 2 wrong configuration, 5 another run took over.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_client.errors import UsageError
from imago_spark.errors import OptionError, TableError
from imago_spark.pipelines import application, settings, streaming
from imago_spark.pipelines.aggregate import from_topics, windows
from imago_spark.pipelines.aggregate.reading import MICROS, look, pending, waiting
from imago_spark.pipelines.late_workers import run_stream
from imago_spark.pipelines.reports import Fence
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.commits import DataFile, StagedBatch
from imago_spark.pipelines.tables.history import Lake
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, GroupedData, SparkSession

    from imago_spark.pipelines.aggregate.windows import Aggregation, Measure
    from imago_spark.pipelines.settings import IngestSettings

log = logging.getLogger(__name__)

_FUNCTIONS: Final = {"count": F.count, "sum": F.sum, "min": F.min, "max": F.max, "avg": F.avg}
KEY_BYTES_MAX: Final = 16 << 10
"""Of a message's key; the broker takes 32 KiB of properties, the client's own among them."""
VALUE_BYTES_MAX: Final = 1 << 20
_FIRST: Final = -62_135_596_800
"""The first second that has a date."""


def build(rows: DataFrame, how: Aggregation, through: int) -> DataFrame:
    """Return the figures of the windows that are closed now. A sum that has no place is null."""
    figures = _grouped(rows, how, through).agg(*(_figure(one) for one in how.measures))
    return figures.select(
        F.timestamp_seconds("_start").alias("window_start"),
        F.timestamp_seconds(F.col("_start") + how.window_s).alias("window_end"),
        *how.by,
        *(one.name for one in how.measures),
        F.to_date(F.timestamp_seconds("_start")).alias("date"),
    )


def _grouped(rows: DataFrame, how: Aggregation, through: int) -> GroupedData:
    at = F.col("_at")
    start = F.floor(at / (how.window_s * MICROS)) * how.window_s
    return rows.where(at < through * MICROS).groupBy(start.alias("_start"), *how.by)


def _figure(one: Measure) -> Column:
    of = F.col(one.field) if one.field else F.lit(1)
    make = F.try_sum if one.may_overflow else _FUNCTIONS[one.function]
    return make(of).cast(one.kind).alias(one.name)


def overflows(rows: DataFrame, how: Aggregation, through: int) -> int:
    """Return how many sums of these figures are null because they would be too large."""
    sums = [F.col(one.field) for one in how.measures if one.may_overflow]
    names = [f"_{number}" for number in range(len(sums))]
    lacking = [((F.count(one) > 0) & F.try_sum(one).isNull()).cast("int") for one in sums]
    found = _grouped(rows, how, through).agg(*map(Column.alias, lacking, names))
    return sum(found.agg(*map(F.sum, names)).collect()[0])


def messages(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return figures as messages, in an order of their own, with why one cannot be sent.

    They are what their files say, for ever: the same rows become the same requests.
    """
    rows = rows.coalesce(1).sortWithinPartitions("window_start", *by)
    key = F.concat_ws(" ", *(F.col(name).cast("string") for name in by))
    named = rows.select(
        key.alias("key"),
        F.to_json(F.struct(*(name for name in rows.columns if name != "date"))).alias("value"),
    )
    key, value = F.col("key"), F.col("value")
    is_text = F.is_valid_utf8(key) & F.is_valid_utf8(value)
    why = (
        F.when(~is_text, "its key or a figure is no UTF-8")
        .when(key.contains("\x01") | key.contains("\x02"), "its key holds 0x01 or 0x02")
        .when(F.octet_length(key) > KEY_BYTES_MAX, f"its key is over {KEY_BYTES_MAX} bytes")
        .when(F.octet_length(value) > VALUE_BYTES_MAX, f"is over {VALUE_BYTES_MAX} bytes as JSON")
    )
    return named.withColumn("why", why)


class Figures:
    """A table of figures, and the topic to which they go."""

    def __init__(
        self,
        spark: SparkSession,
        how: Aggregation,
        given: IngestSettings,
        fence: Callable[[], None],
    ) -> None:
        self._spark, self._how, self._given, self._fence = spark, how, given, fence
        self.table = TableWriter(given.path, epoch=given.epoch)
        self._sent = given.path / "_imago" / "sent"

    def begin(self) -> None:
        """Begin a run: with what the one before had committed and not sent."""
        contract.claim(self.table, "aggregate", self._how.fields)
        stands = self.table.read_last()
        before = {name: stands.mark.get(name) for name in self._how.mark} if stands else {}
        if stands is not None and stands.mark and before != self._how.mark:
            name = next(name for name, value in self._how.mark.items() if before[name] != value)
            raise TableError(
                f"{self.table.path}: {name} was {before[name]!r} and now is"
                f" {self._how.mark[name]!r}: its figures would be of two kinds; give it a new path"
            )
        self.table.begin()
        self._send()

    def take(self, lake: Lake) -> bool:
        """Take in what is new in the input; return whether there was anything."""
        last, how = self.table.last, self._how
        found = look(self._spark, lake, how, last, skips=self._given.skips_lost)
        if found is None:
            return False
        attempt, now = self.table.stage(), lake.history.last
        first, waits, overflowed = found.open, found.waits, 0
        if found.closes and found.through is not None:
            rows = pending(self._spark, lake, how, found)
            first, waits = now.number + 1, {}
            if rows is not None:
                figures = build(rows, how, found.through).repartition("date")
                figures.write.partitionBy("date").parquet(str(attempt))
                left, waits = waiting(rows, found.through)
                first = first if left is None else left
                if any(_nulls(attempt, one.name) for one in how.measures if one.may_overflow):
                    overflowed = overflows(rows, how, found.through)
        self._fence()
        mark = {
            **how.mark,
            "readTo": now.number,
            "inputTable": lake.identity,
            "open": first,
            "waits": [
                [one.topic, one.shard, one.queue_id, at] for one, at in sorted(waits.items())
            ],
            "newest": found.newest,
            "through": found.through,
            "late": last.mark.get("late", 0) + found.late,
            "untimed": last.mark.get("untimed", 0) + found.untimed,
            "overflowed": last.mark.get("overflowed", 0) + overflowed,
        }
        files = tuple(_files(attempt))
        batch = StagedBatch(str(how.input), last.batch + 1, files, found.landed)
        batch = replace(batch, incarnations=now.incarnations, cluster=now.cluster, mark=mark)
        if files:
            mark["figures"] = last.number + 1
        elif "figures" in last.mark:
            mark["figures"] = last.mark["figures"]
        made = self.table.commit(batch, holes=True)
        shutil.rmtree(attempt, ignore_errors=True)
        log.info("%d rows of the input, %d figures in all", found.rows, made.rows)
        self._send()
        return True

    def _send(self) -> None:
        """Send the newest figures, unless they were: earlier ones were before they were made."""
        number = self.table.last.mark.get("figures")
        if self._how.topic is None or number is None or number <= self._sent_before()[0]:
            return
        files = [str(self.table.path / one.path) for one in self.table.read(number).files]
        found = messages(self._spark.read.parquet(*files), self._how.by)
        unsent = self.unsent
        for why, count in found.where("why is not null").groupBy("why").count().collect():
            log.warning("commit %d: %d figures are not sent: %s", number, count, why)
            unsent += count
        rows = found.where("why is null").drop("why")
        run_stream(lambda: self._send_files(rows, number))
        draft = self._sent.with_suffix(".new")
        draft.write_text(f"{number} {unsent}", encoding="utf-8")
        draft.replace(self._sent)

    @property
    def unsent(self) -> int:
        """Figures that are in the table and could not be messages."""
        return self._sent_before()[1]

    def _sent_before(self) -> tuple[int, int]:
        """Return the last commit whose figures were sent, and how many of all could not be."""
        try:
            number, unsent = self._sent.read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return -1, 0
        return int(number), int(unsent)

    def _send_files(self, rows: DataFrame, number: int) -> None:
        how, given = self._how, self._given
        options = {"bootstrap": given.bootstrap, "topic": str(how.topic)}
        options |= {"sinkId": f"figures-{self.table.identity}", "sinkBatch": str(number)}
        if given.pipeline is not None:
            options |= {"pipeline": given.pipeline, "epoch": str(given.epoch)}
        rows.write.format("imago").options(**options).mode("append").save()


def _files(attempt: Path) -> Iterator[DataFile]:
    import pyarrow.parquet as pq

    for path in sorted(attempt.rglob("*.parquet")) if attempt.exists() else ():
        if rows := pq.read_metadata(path).num_rows:
            name = path.relative_to(attempt.parent).as_posix()
            yield DataFile(name, "", rows, path.stat().st_size)


def _nulls(attempt: Path, name: str) -> bool:
    """Whether a column of staged figures has a null."""
    import pyarrow.parquet as pq

    paths = attempt.rglob("*.parquet") if attempt.exists() else ()
    return any(
        pq.read_table(path, columns=[name], partitioning=None).column(0).null_count
        for path in paths
    )


def _time(seconds: int | None) -> str | None:
    if seconds is None:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=max(seconds, _FIRST))).isoformat()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    parser = application.parser("aggregate", __doc__)
    parser.add_argument("--dry-run", action="store_true", help="say what a pass would do")
    asked = parser.parse_args(arguments)
    if asked.config is None:
        return application.refused("aggregate", "--config is missing")
    application.log_lines()
    try:
        given = settings.load(asked.config, asked.epoch, windows.OWN, unneeded=("checkpoint",))
        source = TableWriter(windows.input_of(given))
        if "input" not in given.own:
            return application.guarded(lambda: _run_of_topics(asked, given, source))
        how = _aggregation(given, source)
    except (OptionError, TableError, UsageError) as error:
        return application.refused("aggregate", error)
    return application.guarded(lambda: _run(asked, given, how, source))


def _run_of_topics(asked: argparse.Namespace, given: IngestSettings, source: TableWriter) -> int:
    fence = Fence(given)
    fence()
    spark = application.spark("aggregate", asked)
    try:
        shape = from_topics.shape_of(given)
        how = windows.aggregation(given, shape.fields)
        topics = from_topics.TopicInput(given, shape, source, fence)
    except (OptionError, UsageError) as error:
        spark.stop()
        return application.refused("aggregate", error)
    return _run(asked, given, how, source, topics=topics, spark=spark)


def _aggregation(given: IngestSettings, source: TableWriter) -> Aggregation:
    try:
        return windows.aggregation(given, contract.fields_of(source))
    except OptionError as error:
        if source.read_last() is not None:
            raise
        why = f"{source.path} has no commit yet, so nobody knows its fields"
        raise OptionError(
            f"{error} ({why}: start what writes it, or correct config.input)"
        ) from None


def _run(
    asked: argparse.Namespace,
    given: IngestSettings,
    how: Aggregation,
    source: TableWriter,
    *,
    topics: from_topics.TopicInput | None = None,
    spark: SparkSession | None = None,
) -> int:
    stop, fence = streaming.StopSignal(), Fence(given)
    stop.install()
    fence()
    if topics is not None and not asked.dry_run:
        topics.begin()
    lake = Lake(source)
    spark = spark or application.spark("aggregate", asked)
    try:
        if asked.dry_run:
            return _dry_run(spark, lake, how, given)
        figures = Figures(spark, how, given, fence)
        figures.begin()
        while True:
            if topics is not None:
                topics.take(spark, stop)
            lake.refresh()
            if figures.take(lake) and topics is not None:
                topics.let_go(figures.table.last)
            if given.available_now or stop.wait(given.trigger_s):
                break
    finally:
        spark.stop()
    last = figures.table.last
    told = {"rows": last.rows, "late": last.mark.get("late", 0)}
    told |= {name: last.mark.get(name, 0) for name in ("untimed", "overflowed")}
    told |= {"unsent": figures.unsent, "through": _time(last.mark.get("through"))}
    print(json.dumps(told), flush=True)
    return 0


def _dry_run(spark: SparkSession, lake: Lake, how: Aggregation, given: IngestSettings) -> int:
    told: dict[str, Any] = {"rows": 0, "late": 0, "untimed": 0, "figures": 0, "through": None}
    last = TableWriter(given.path).read_last()
    found = look(spark, lake, how, last, skips=given.skips_lost)
    if found is not None:
        told |= {"rows": found.rows, "late": found.late, "untimed": found.untimed}
        told["through"] = _time(found.through)
        rows = pending(spark, lake, how, found) if found.closes else None
        if rows is not None and found.through is not None:
            told["figures"] = build(rows, how, found.through).count()
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
