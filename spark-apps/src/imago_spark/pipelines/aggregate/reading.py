"""What of the input the figures do not have yet, and what they still need of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_client.message_queue import MessageQueue
from imago_spark.errors import TableError
from imago_spark.pipelines.tables.commits import Landed
from imago_spark.pipelines.tables.history import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from imago_spark.pipelines.aggregate.windows import Aggregation
    from imago_spark.pipelines.tables.commits import Commit
    from imago_spark.pipelines.tables.history import Lake

MICROS: Final = 1_000_000
_YEARS: Final = (-62_135_596_800 * MICROS, 253_402_300_800 * MICROS)
"""The times of the years 1 to 9999; others are none, as in the source's columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInput:
    """What is new in the input, and which windows it closes."""

    landed: tuple[Landed, ...]
    rows: int
    late: int
    untimed: int
    open: int
    """The first commit of the input with a row of a window that was not closed before."""
    waits: Mapping[MessageQueue, int]
    """The first offset of each queue that such a row may have."""
    newest: int | None
    """Microseconds since 1970."""
    since: int | None
    """Up to where windows were closed before, in seconds since 1970."""
    through: int | None
    """And up to where they are closed now."""

    @property
    def closes(self) -> bool:
        return self.through is not None and self.through != self.since


def mark_of(lake: Lake, how: Aggregation, last: Commit | None, *, skips: bool) -> Mapping[str, Any]:
    """Return what the figures remember of the input.

    TableError, unless `skips`: it is another table by now, or has lost rows that they need.
    """
    if last is None or "readTo" not in last.mark:
        return last.mark if last else {}
    if last.mark.get("inputTable", lake.identity) != lake.identity:
        if not skips:
            raise TableError(
                f"{how.input}: was removed and made anew since figures were made of it: its commits"
                ' are others; give the figures a new path, or set onDataLoss = "skip" to go on'
                " after the offsets that they have, with what is there of the windows still open"
            )
        return {**last.mark, "readTo": -1, "open": 0, "waits": []}
    if not skips and (what := lost(lake, how, last)) is not None:
        raise TableError(
            f"{how.input}: {what} went before their windows were closed: figures would be too"
            " small; have compact keep days for longer than window and delay, and set onDataLoss ="
            ' "skip" to go on without these rows'
        )
    return last.mark


def lost(lake: Lake, how: Aggregation, last: Commit) -> str | None:
    """Return, in words, what the input has not any more and figures need; None: nothing."""
    needed = {queue: at for queue, at in last.ends.items() if _is_same(lake, last, queue)}
    needed |= {
        queue: at for queue, at in waits_of(last.mark).items() if _is_same(lake, last, queue)
    }
    # Rows of a topic that was made anew since are told by the numbers of their files.
    since = [at for (topic, _), at in lake.history.since.items() if topic in how.topics]
    for commit in lake.commits[last.mark["readTo"] + 1 :]:
        for one in commit.expired:
            start = max(one.start, needed.get(one.queue, 0))
            if one.queue.topic in how.topics and start < one.end:
                return f"{one.queue}: offsets {start} to {one.end - 1}"
        for path in () if commit.files else commit.removed:
            number = int(path.rpartition("/")[2].partition("-")[0])
            if last.mark["open"] <= number < max(since, default=0):
                return f"{path}, with rows of a topic that was made anew since,"
    return None


def _is_same(lake: Lake, last: Commit, queue: MessageQueue) -> bool:
    """Whether a queue is still that of the topic of which there are figures."""
    place = (queue.topic, queue.shard)
    known, now = last.incarnations.get(place), lake.history.last.incarnations.get(place)
    return known is None or now is None or known.is_same(now)


def waits_of(mark: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Return the first offset of each queue that a row of an open window may have."""
    return {
        MessageQueue(topic, shard, number): at for topic, shard, number, at in mark.get("waits", ())
    }


def new_in(lake: Lake, how: Aggregation, last: Commit | None) -> Iterator[Landed]:
    """Yield the offsets of the input that the figures do not have yet."""
    for queue, parts in sorted(lake.history.ranges.items()):
        if not parts:
            continue  # all of them have expired
        begin = parts[0][0]
        if last is not None and _is_same(lake, last, queue):
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
    names = dict.fromkeys([*how.by, *(one.field for one in how.measures if one.field)])
    rows = spark.read.option("mergeSchema", "true").parquet(*files)
    number = number_of(lake.history)
    is_former = F.lit(False)
    for (topic, shard), first in lake.history.since.items():
        is_place = (F.col("topic") == topic) & (F.col("shard") == shard)
        is_former |= is_place & (number < first)

    def column(name: str) -> Column:
        """Return one that the table has, if perhaps none of these files."""
        is_there = name in rows.columns
        return F.col(name) if is_there else F.lit(None).cast(how.kinds[name]).alias(name)

    at = F.unix_micros(column(how.time))
    return rows.where(F.col("topic").isin(*how.topics)).select(
        *map(column, names),
        F.struct("topic", "shard", "queue", "offset").alias("_place"),
        F.when((at >= _YEARS[0]) & (at < _YEARS[1]), at).alias("_at"),
        F.unix_micros("store_time").alias("_stored"),
        number.alias("_number"),
        is_former.alias("_former"),
    )


def within(landed: Sequence[Landed], *, new: bool) -> Column:
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


def look(
    spark: SparkSession, lake: Lake, how: Aggregation, last: Commit | None, *, skips: bool
) -> NewInput | None:
    """Return what is new in the input; None: nothing. TableError: see `mark_of`."""
    mark = mark_of(lake, how, last, skips=skips)
    landed = tuple(new_in(lake, how, last))
    rows = stored(spark, lake, how, mark.get("readTo", -1) + 1) if landed else None
    if rows is None:
        return None
    since = mark.get("through")
    at = F.col("_at")
    is_late = F.lit(False) if since is None else at < since * MICROS
    counted = rows.where(~F.col("_former") & within(landed, new=True)).agg(
        F.count(F.lit(1)),
        F.count_if(is_late),
        F.count_if(at.isNull()),
        F.min("_number"),
        F.max(F.when(at.isNotNull(), F.least(at, "_stored"))),
    )
    count, late, untimed, first, newest = counted.collect()[0]
    known = [one for one in (mark.get("newest"), newest) if one is not None]
    newest = max(known, default=None)
    through = how.closed(None if newest is None else newest / MICROS)
    if through is not None and since is not None:
        through = max(through, since)
    waits = waits_of(mark)
    opened = [one for one in (mark.get("open"), first) if one is not None]
    return NewInput(
        landed=landed,
        rows=count,
        late=late,
        untimed=untimed,
        open=opened[0] if opened else lake.history.last.number + 1,
        waits=waits
        | {one.queue: min(one.start, waits.get(one.queue, one.start)) for one in landed},
        newest=newest,
        since=since,
        through=through,
    )


def pending(spark: SparkSession, lake: Lake, how: Aggregation, found: NewInput) -> DataFrame | None:
    """Return the rows whose windows were not closed before; None: there is no file of any."""
    rows = stored(spark, lake, how, found.open)
    if rows is None:
        return None
    known = [Landed(one, 0, parts[-1][1]) for one, parts in lake.history.ranges.items() if parts]
    rows = rows.where(F.col("_former") | within(known, new=False))
    return rows if found.since is None else rows.where(F.col("_at") >= found.since * MICROS)


def waiting(rows: DataFrame, through: int) -> tuple[int | None, dict[MessageQueue, int]]:
    """Return the first commit of the rows whose windows are still open then, and their first
    offsets.
    """
    is_former, place = F.col("_former"), [f"_place.{name}" for name in ("topic", "shard", "queue")]
    left = rows.where(F.col("_at") >= through * MICROS).groupBy(*place)
    found = left.agg(F.min("_number"), F.min(F.when(~is_former, F.col("_place.offset")))).collect()
    waits = {MessageQueue(*row[:3]): row[4] for row in found if row[4] is not None}
    return min((row[3] for row in found), default=None), waits
