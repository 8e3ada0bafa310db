"""Figures of each topic, by minute and by day: messages, bytes, keys, producers, sizes.

    python -m imago_spark.pipelines.topic_stats --config FILE [--epoch N] [--dry-run]

FILE names the topics and where figures go (`path`). In its part `[config]`:

    input = "/lake/orders"     # the table of ingest that has the messages
    days = 2                   # the last so many days are computed, and take the place of before

`PATH/minutes` and `PATH/days` have a row for each topic and minute, or day, of storing: `topic`,
`at`, `rows`, `bytes`, `damaged`, `keys`, `producers` and `tags` (about how many different ones),
`size_p50`, `size_p95`, `size_p99` and `size_max` of bodies. They are Parquet by `date`.

`--dry-run` writes nothing. Both print one line of JSON: rows, and how many figures of `minutes` and
`days`. The messages of all minutes are those of all days, or the run fails.

Exit codes: 0 done, 1 failed, 2 wrong configuration, 5 another run took over.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.errors import TableError
from imago_spark.pipelines import application
from imago_spark.pipelines.reports import Fence
from imago_spark.pipelines.settings import count_in
from imago_spark.pipelines.tables import days
from imago_spark.schema import CHECKED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from imago_spark.pipelines.settings import IngestSettings

OWN: Final = ("input", "days")
GRAINS: Final = {"minutes": "minute", "days": "day"}
PERCENTILES: Final = (0.5, 0.95, 0.99)


def build(spark: SparkSession, options: Mapping[str, str]) -> DataFrame | None:
    """Return the figures of `topics` in the table `input` by `grain`, minute or day, from the day
    `since` on; None: the table has no file.
    """
    rows = days.messages(spark, options)
    return None if rows is None else figures(rows, options["grain"])


def figures(rows: DataFrame, grain: str) -> DataFrame:
    """Return the figures of messages."""
    size = F.length("value")
    sizes = F.percentile_approx(size, list(PERCENTILES))
    grouped = rows.groupBy("topic", F.date_trunc(grain, "store_time").alias("at"))
    made = grouped.agg(
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(size), F.lit(0)).alias("bytes"),
        F.count_if(~F.coalesce(F.col(CHECKED), F.lit(False))).alias("damaged"),
        F.approx_count_distinct("key").alias("keys"),
        F.approx_count_distinct("born_host").alias("producers"),
        F.approx_count_distinct("tags").alias("tags"),
        sizes.alias("_sizes"),
        F.max(size).alias("size_max"),
    )
    named = [
        F.col("_sizes")[at].alias(f"size_p{round(100 * one)}") for at, one in enumerate(PERCENTILES)
    ]
    kept = [name for name in made.columns if name not in ("_sizes", "size_max")]
    return made.select(*kept, *named, "size_max", F.to_date("at").alias("date"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    return application.run_once("topic_stats", __doc__, OWN, _checked, _run, arguments)


def _checked(given: IngestSettings) -> None:
    days.input_of(given.own, given.path)
    count_in(given.own, "days", days.DAYS)


def _run(spark: SparkSession, asked: argparse.Namespace, given: IngestSettings) -> dict[str, Any]:
    count = count_in(given.own, "days", days.DAYS) or days.DAYS
    options = {"input": str(days.input_of(given.own, given.path))}
    options |= {"topics": ",".join(given.topics)}
    options |= {"since": days.since_of(count, datetime.now(UTC))}
    told: dict[str, Any] = {"rows": 0, "minutes": 0, "days": 0}
    rows = days.messages(spark, options)
    if rows is None:
        return told
    sums = []
    for name, grain in GRAINS.items():
        made = figures(rows, grain).cache()
        counted = made.agg(F.count(F.lit(1)), F.coalesce(F.sum("rows"), F.lit(0))).collect()[0]
        told[name], summed = counted
        sums.append(summed)
        if not asked.dry_run and told[name]:
            days.write(made, given.path / name, Fence(given))
        made.unpersist()
    if sums[0] != sums[1]:
        raise TableError(f"{sums[0]} messages by minute, {sums[1]} by day: run it again")
    return told | {"rows": sums[0]}


if __name__ == "__main__":
    sys.exit(main())
