"""Windows per key over a table of parse become a table of figures, and messages if wanted.

    python -m imago_spark.pipelines.aggregate --config FILE [--epoch N] [--dry-run]

The configuration is that of ingest (`pipelines.settings`), without `checkpoint`: the table of
figures is `path`, and `topics` are those of the input whose rows count. In its part `[config]`:

    input = "/lake/orders-parsed"     # the table that is read, of parse or of ingest
    by = "customer"                   # the key: columns, joined with commas
    time = "at"                       # when it was: a timestamp; default store_time
    window = "5m"                     # s, m, h or d; windows begin with the day, in UTC
    delay = "10m"                     # how late an event may come
    measures = "count, sum(amount), max(amount)"    # count, sum, min, max, avg
    topic = "orders-5m"               # where figures go, too; unless given, nowhere

A row has window_start, window_end, the key and the measures. It is written once, when its window is
closed: when an event is newer than the window's end by `delay`. What comes after that is counted as
`late`, and an event without a time as `untimed`; both are in no window.

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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_client.errors import UsageError
from imago_spark.errors import OptionError, TableError
from imago_spark.pipelines import application, settings, streaming
from imago_spark.pipelines.aggregate import windows
from imago_spark.pipelines.late_workers import run_stream
from imago_spark.pipelines.reports import Fence
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.commits import DataFile, Landed, StagedBatch
from imago_spark.pipelines.tables.history import Lake, number_of
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from imago_spark.pipelines.aggregate.windows import Aggregation, Measure
    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.commits import Commit

log = logging.getLogger(__name__)

_FUNCTIONS: Final = {"count": F.count, "sum": F.sum, "min": F.min, "max": F.max, "avg": F.avg}
_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInput:
    """What is new in the input, and which windows it closes."""

    landed: tuple[Landed, ...]
    rows: int
    late: int
    untimed: int
    first: int
    """The first commit of the input with a new row."""
    newest: int | None
    """Microseconds since 1970."""
    since: int | None
    """Up to where windows were closed before, in seconds since 1970."""
    through: int | None
    """And up to where they are closed now."""

    @property
    def closes(self) -> bool:
        return self.through is not None and self.through != self.since


def new_in(lake: Lake, how: Aggregation, last: Commit | None) -> Iterator[Landed]:
    """Yield the offsets of the input that the figures do not have yet."""
    now = lake.history.last.incarnations
    for queue, parts in sorted(lake.history.ranges.items()):
        if not parts:
            continue  # all of them have expired
        place, begin = (queue.topic, queue.shard), parts[0][0]
        if last is not None and (known := last.incarnations.get(place)) is not None:
            if place not in now or known.is_same(now[place]):
                begin = last.ends.get(queue, begin)
        elif last is not None:
            begin = last.ends.get(queue, begin)
        if queue.topic in how.topics and begin < parts[-1][1]:
            yield Landed(queue, begin, parts[-1][1])


def stored(spark: SparkSession, lake: Lake, how: Aggregation, since: int) -> DataFrame | None:
    """Return the input's rows of commits from `since` on: time, number of the commit, whether new.

    A row of a topic that was made anew since is an event like others; its offset says nothing.
    """
    files = lake.files(since=since)
    if not files:
        return None
    number = number_of(lake.history)
    names = dict.fromkeys([*how.by, *(one.field for one in how.measures if one.field)])
    rows = spark.read.option("mergeSchema", "true").parquet(*files)
    is_former = F.lit(False)
    for (topic, shard), first in lake.history.since.items():
        is_place = (F.col("topic") == topic) & (F.col("shard") == shard)
        is_former |= is_place & (number < first)
    return rows.where(F.col("topic").isin(*how.topics)).select(
        *(F.col(one) if one in rows.columns else _absent(how, one) for one in names),
        F.struct("topic", "shard", "queue", "offset").alias("_place"),
        F.unix_micros(F.col(how.time)).alias("_at"),
        F.unix_micros("store_time").alias("_stored"),
        number.alias("_number"),
        is_former.alias("_former"),
    )


def _absent(how: Aggregation, name: str) -> Column:
    """Return a column that the table has, and none of these files."""
    return F.lit(None).cast(how.kinds[name]).alias(name)


def _within(landed: Sequence[Landed], *, new: bool) -> Column:
    """Return whether a row is of these offsets, or else whether it is before their ends."""
    found = F.lit(False)
    for one in landed:
        place, low = F.col("_place"), one.start if new else 0
        found |= (
            (place["topic"] == one.queue.topic)
            & (place["shard"] == one.queue.shard)
            & (place["queue"] == one.queue.queue_id)
            & place["offset"].between(low, one.end - 1)
        )
    return found


def look(spark: SparkSession, lake: Lake, how: Aggregation, last: Commit | None) -> NewInput | None:
    """Return what is new in the input; None: nothing."""
    mark = last.mark if last else {}
    landed = tuple(new_in(lake, how, last))
    rows = stored(spark, lake, how, mark.get("readTo", -1) + 1) if landed else None
    if rows is None:
        return None
    since = mark.get("through")
    at = F.col("_at")
    is_late = F.lit(False) if since is None else at < since * _MICROS
    counted = rows.where(~F.col("_former") & _within(landed, new=True)).agg(
        F.count(F.lit(1)),
        F.count_if(is_late),
        F.count_if(at.isNull()),
        F.min("_number"),
        F.max(F.when(at.isNotNull(), F.least(at, "_stored"))),
    )
    count, late, untimed, first, newest = counted.collect()[0]
    known = [one for one in (mark.get("newest"), newest) if one is not None]
    newest = max(known, default=None)
    through = how.closed(None if newest is None else newest / _MICROS)
    if through is not None and since is not None:
        through = max(through, since)
    return NewInput(
        landed=landed,
        rows=count,
        late=late,
        untimed=untimed,
        first=mark.get("open", first),
        newest=newest,
        since=since,
        through=through,
    )


def build(
    spark: SparkSession, lake: Lake, how: Aggregation, found: NewInput, seen: Observation
) -> DataFrame:
    """Return the figures of the windows that are closed now; `seen`: what is left of the input."""
    rows = stored(spark, lake, how, found.first)
    if rows is None or found.through is None:
        raise AssertionError("figures are built of windows that were closed by a row")
    known = [Landed(one, 0, parts[-1][1]) for one, parts in lake.history.ranges.items() if parts]
    at, through = F.col("_at"), found.through * _MICROS
    pending = rows.where(F.col("_former") | _within(known, new=False))
    if found.since is not None:
        pending = pending.where(at >= found.since * _MICROS)
    pending = pending.observe(seen, F.min(F.when(at >= through, F.col("_number"))).alias("open"))
    start = F.floor(at / (how.window_s * _MICROS)) * how.window_s
    figures = pending.where(at < through).groupBy(start.alias("_start"), *how.by)
    return figures.agg(*(_figure(one) for one in how.measures)).select(
        F.timestamp_seconds("_start").alias("window_start"),
        F.timestamp_seconds(F.col("_start") + how.window_s).alias("window_end"),
        *how.by,
        *(one.name for one in how.measures),
        F.to_date(F.timestamp_seconds("_start")).alias("date"),
    )


def _figure(one: Measure) -> Column:
    of = F.col(one.field) if one.field else F.lit(1)
    return _FUNCTIONS[one.function](of).cast(one.kind).alias(one.name)


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
        found = look(self._spark, lake, how, last)
        if found is None:
            return False
        attempt, seen = self.table.stage(), Observation("pending")
        still_open: int | None = found.first
        if found.closes:
            figures = build(self._spark, lake, how, found, seen)
            figures.repartition("date").write.partitionBy("date").parquet(str(attempt))
            still_open = seen.get["open"]
        self._fence()
        now = lake.history.last
        mark = {
            **how.mark,
            "readTo": now.number,
            "open": now.number + 1 if still_open is None else still_open,
            "newest": found.newest,
            "through": found.through,
            "late": last.mark.get("late", 0) + found.late,
            "untimed": last.mark.get("untimed", 0) + found.untimed,
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
        if self._how.topic is None or number is None or number <= self._last_sent():
            return
        files = [str(self.table.path / one.path) for one in self.table.read(number).files]
        run_stream(lambda: self._send_files(files, number))
        draft = self._sent.with_suffix(".new")
        draft.write_text(str(number), encoding="utf-8")
        draft.replace(self._sent)

    def _last_sent(self) -> int:
        try:
            return int(self._sent.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return -1

    def _send_files(self, files: Sequence[str], number: int) -> None:
        how, given = self._how, self._given
        # Their order, and so their numbers, come from the files: they are what they are for ever.
        rows = self._spark.read.parquet(*files).coalesce(1)
        rows = rows.sortWithinPartitions("window_start", *how.by).select(
            F.concat_ws(" ", *(F.col(name).cast("string") for name in how.by)).alias("key"),
            F.to_json(F.struct(*how.fields)).alias("value"),
        )
        options = {"bootstrap": given.bootstrap, "topic": str(how.topic)}
        options |= {"sinkId": f"figures-{self.table.read(0).run}", "sinkBatch": str(number)}
        if given.pipeline is not None:
            options |= {"pipeline": given.pipeline, "epoch": str(given.epoch)}
        rows.write.format("imago").options(**options).mode("append").save()


def _files(attempt: Path) -> Iterator[DataFile]:
    import pyarrow.parquet as pq

    for path in sorted(attempt.rglob("*.parquet")) if attempt.exists() else ():
        if rows := pq.read_metadata(path).num_rows:
            name = path.relative_to(attempt.parent).as_posix()
            yield DataFile(name, "", rows, path.stat().st_size)


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


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
        how = windows.aggregation(given, contract.fields_of(source))
    except (OptionError, TableError, UsageError) as error:
        return application.refused("aggregate", error)
    return application.guarded(lambda: _run(asked, given, how, source))


def _run(
    asked: argparse.Namespace, given: IngestSettings, how: Aggregation, source: TableWriter
) -> int:
    stop, fence = streaming.StopSignal(), Fence(given)
    stop.install()
    fence()
    lake = Lake(source)
    spark = application.spark("aggregate", asked)
    try:
        if asked.dry_run:
            return _dry_run(spark, lake, how, TableWriter(given.path).read_last())
        figures = Figures(spark, how, given, fence)
        figures.begin()
        figures.take(lake)
        while not given.available_now and not stop.wait(given.trigger_s):
            lake.refresh()
            figures.take(lake)
    finally:
        spark.stop()
    last = figures.table.last
    told = {"rows": last.rows, "late": last.mark.get("late", 0)}
    told |= {"untimed": last.mark.get("untimed", 0), "through": _time(last.mark.get("through"))}
    print(json.dumps(told), flush=True)
    return 0


def _dry_run(spark: SparkSession, lake: Lake, how: Aggregation, last: Commit | None) -> int:
    told: dict[str, Any] = {"rows": 0, "late": 0, "untimed": 0, "figures": 0, "through": None}
    found = look(spark, lake, how, last)
    if found is not None:
        told |= {"rows": found.rows, "late": found.late, "untimed": found.untimed}
        told["through"] = _time(found.through)
        if found.closes:
            told["figures"] = build(spark, lake, how, found, Observation("pending")).count()
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
