"""How far groups are behind, and how long messages took from their producers to the brokers.

    python -m imago_spark.pipelines.lag_latency --config FILE [--epoch N] [--dry-run]

FILE names the topics and where figures go (`path`). In its part `[config]`:

    input = "/lake/orders"          # the table of ingest that has the messages
    groups = "billing, shipping"    # whose lag is noted; unless given, of none
    days = 2                        # latencies of the last so many days are computed anew

`PATH/latency` has a row for each topic and minute of storing: `rows`, `p50`, `p95`, `p99` and `max`
in milliseconds, and `skewed`: messages that were stored before they were made, by clocks that
differ, and that are in no percentile. `PATH/lag` gets a row for each group and queue and run: `at`,
`committed`, `end`, `lag`, and `waited_s`, for how long the first message waits that the group has
not read (null where the table does not have it). Both are Parquet by `date`.

`--dry-run` writes nothing. Both print one line of JSON: rows, `skewed`, `latencies` (figures), and
the sum of lags of each group as `lag`.

Exit codes: 0 done, 1 failed, 2 wrong configuration, 5 another run took over.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_client.naming import check_name
from imago_spark.broker import TopicBrokers
from imago_spark.options import parse_options
from imago_spark.pipelines import application
from imago_spark.pipelines.reports import Fence
from imago_spark.pipelines.settings import count_in
from imago_spark.pipelines.tables import days

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from imago_spark.pipelines.settings import IngestSettings

OWN: Final = ("input", "days", "groups")
PERCENTILES: Final = (0.5, 0.95, 0.99)
LAG: Final = (
    "at timestamp, group string, topic string, shard string, queue int, committed bigint,"
    " end bigint, lag bigint"
)


def build(spark: SparkSession, options: Mapping[str, str]) -> DataFrame | None:
    """Return latencies by minute of `topics` in the table `input`, from the day `since` on; None:
    the table has no file.
    """
    rows = days.messages(spark, options)
    return None if rows is None else latencies(rows)


def latencies(rows: DataFrame) -> DataFrame:
    """Return the latencies of messages, by minute."""
    ms = (F.unix_micros("store_time") - F.unix_micros("born_time")) / 1000
    known = F.when(ms >= 0, ms)
    made = rows.groupBy("topic", F.date_trunc("minute", "store_time").alias("at")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(ms < 0).alias("skewed"),
        F.percentile_approx(known, list(PERCENTILES)).alias("_ms"),
        F.max(known).alias("max"),
    )
    named = [F.col("_ms")[at].alias(f"p{round(100 * one)}") for at, one in enumerate(PERCENTILES)]
    return made.select(
        "topic", "at", "rows", "skewed", *named, "max", F.to_date("at").alias("date")
    )


def lags(spark: SparkSession, given: IngestSettings, now: datetime) -> DataFrame:
    """Return a row for each group and queue that the topics have."""
    brokers = TopicBrokers(parse_options(given.source_options()))
    queues = brokers.queues()
    ends, first = brokers.latest(queues), brokers.earliest(queues)
    rows = []
    for group in groups_of(given):
        done = brokers.committed(group, queues)
        for queue in queues:
            # What is gone, nobody waits for.
            begin = max(done.get(queue, 0), first[queue])
            place = (queue.topic, queue.shard, queue.queue_id)
            lag = max(0, ends[queue] - begin)
            rows.append((now, group, *place, done.get(queue), ends[queue], lag))
    return spark.createDataFrame(rows, LAG)


def waited(lag: DataFrame, rows: DataFrame | None) -> DataFrame:
    """Add for how long the first message waits that a group has not read."""
    lag = lag.withColumn("date", F.to_date("at"))
    if rows is None:
        return lag.withColumn("waited_s", F.lit(None).cast("double"))
    place = ["topic", "shard", "queue"]
    unread = (
        rows.select(*place, "offset", "store_time")
        .join(F.broadcast(lag.where("lag > 0")), place)
        .where("offset >= coalesce(committed, 0)")
        .groupBy("group", *place)
        .agg(F.min("store_time").alias("_oldest"))
    )
    found = lag.join(unread, ["group", *place], "left")
    wait = (F.unix_micros("at") - F.unix_micros("_oldest")) / 1e6
    return found.withColumn("waited_s", F.greatest(wait, F.lit(0.0))).drop("_oldest")


def groups_of(given: IngestSettings) -> tuple[str, ...]:
    """Return the groups whose lag is noted."""
    named = str(given.own.get("groups", "")).split(",")
    return tuple(dict.fromkeys(one.strip() for one in named if one.strip()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    return application.run_once("lag_latency", __doc__, OWN, _checked, _run, arguments)


def _checked(given: IngestSettings) -> None:
    days.input_of(given.own, given.path)
    count_in(given.own, "days", days.DAYS)
    for group in groups_of(given):
        check_name("group", group)


def _run(spark: SparkSession, asked: argparse.Namespace, given: IngestSettings) -> dict[str, Any]:
    now, fence = datetime.now(UTC), Fence(given)
    count = count_in(given.own, "days", days.DAYS) or days.DAYS
    options = {"input": str(days.input_of(given.own, given.path))}
    options |= {"topics": ",".join(given.topics), "since": days.since_of(count, now)}
    rows = days.messages(spark, options)
    told: dict[str, Any] = {"rows": 0, "skewed": 0, "latencies": 0}
    if rows is not None:
        made = latencies(rows).cache()
        sums = [F.coalesce(F.sum(name), F.lit(0)) for name in ("rows", "skewed")]
        counted = made.agg(*sums, F.count(F.lit(1))).collect()[0]
        told = dict(zip(told, counted, strict=True))
        if not asked.dry_run and counted[2]:
            days.write(made, given.path / "latency", fence)
        made.unpersist()
    if not groups_of(given):
        return told | {"lag": {}}
    lag = lags(spark, given, now)
    if not asked.dry_run:
        fence()
        out = waited(lag, rows).coalesce(1).write.mode("append").partitionBy("date")
        out.parquet(str(given.path / "lag"))
    summed = lag.groupBy("group").agg(F.sum("lag")).collect()
    return told | {"lag": {row[0]: row[1] for row in sorted(summed)}}


if __name__ == "__main__":
    sys.exit(main())
