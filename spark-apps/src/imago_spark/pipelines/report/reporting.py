"""Write one page about the topics of a table of ingest or parse: rates, latency, lag, errors.

    python -m imago_spark.pipelines.report --config FILE --out report.html [--hours 24]
        [--groups billing,shipping] [--dry-run]

FILE is the configuration of the run that writes the table. The page has, of the last hours that the
table has: rows and bytes a second of the largest topics, the time from a producer to the broker
(percentiles), the largest topics, damaged messages, why messages were rejected, how far the table
is behind each queue, and groups if named, and what an audit finds. It needs no script and nothing
from elsewhere.

Times of producers and brokers come from their clocks: a message that was stored before it was made
is counted as `skewed`, and is in no percentile. Where no broker answers, the page says so, and has
neither lag nor audit.

`--dry-run` writes no page. Both print one line of JSON: rows of these hours, topics, `from` and
`to`, `skewed`, `behind` and `differences` (null where no broker answered).

Exit codes: 0 done, 1 failed, 2 wrong configuration.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_client.message_queue import MessageQueue
from imago_spark.broker import TopicBrokers
from imago_spark.errors import OptionError, SourceError
from imago_spark.options import parse_options
from imago_spark.pipelines import application, audit, parse, settings
from imago_spark.pipelines.report.page import Grid, Plot, page
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.history import Lake
from imago_spark.pipelines.tables.table import TableWriter
from imago_spark.schema import CHECKED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from imago_spark.pipelines.settings import IngestSettings

HOURS_MOST: Final = 24 * 366
POINTS: Final = 120
"""About how many a line has."""
SHOWN: Final = 6
"""Topics with a line of their own."""
LISTED: Final = 30
PERCENTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Span:
    """The time that is reported, in seconds since 1970, and how long one point stands for."""

    start: int
    end: int
    step: int


def span_of(oldest: float, newest: float, hours: int) -> Span:
    """Return the hours before the newest message, or the time since the oldest if that is less."""
    seconds = min(hours * 3600, int(newest) - int(oldest) + 1)
    step = max(1, seconds // POINTS)
    end = int(newest) // step * step + step
    return Span(end - -(-seconds // step) * step, end, step)


def build(spark: SparkSession, files: Sequence[str], hours: int) -> tuple[DataFrame, Span] | None:
    """Return the messages that files have of the last hours; None: they have none."""
    if not files:
        return None
    rows = spark.read.option("mergeSchema", "true").parquet(*files)
    stored = F.unix_micros("store_time")
    oldest, newest = rows.agg(F.min(stored), F.max(stored)).collect()[0]
    if newest is None:
        return None
    span = span_of(oldest / 1e6, newest / 1e6, hours)
    at = F.unix_seconds("store_time")
    size = F.length("value") if "value" in rows.columns else F.lit(None).cast("long")
    made = rows.where(at.between(span.start, span.end - 1)).select(
        "topic",
        (F.floor(at / span.step) * span.step).alias("at"),
        size.alias("size"),
        ((F.unix_micros("store_time") - F.unix_micros("born_time")) / 1000).alias("latency"),
        F.coalesce(F.col(CHECKED), F.lit(False)).alias("good"),
        F.col("reject_reason")
        if "reject_reason" in rows.columns
        else F.lit(None).alias("reject_reason"),
    )
    return made, span


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    parser = application.parser("report", __doc__)
    parser.add_argument("--out", type=Path, help="file to write")
    parser.add_argument("--hours", type=int, default=24, help="before the newest message")
    parser.add_argument("--groups", default="", help="whose lag the page has, joined with commas")
    parser.add_argument("--dry-run", action="store_true", help="write no page")
    asked = parser.parse_args(arguments)
    if asked.config is None or (asked.out is None and not asked.dry_run):
        missing = "--config" if asked.config is None else "--out"
        return application.refused("report", f"{missing} is missing")
    if not 1 <= asked.hours <= HOURS_MOST:
        return application.refused("report", f"--hours: {asked.hours}, must be 1 to {HOURS_MOST}")
    application.log_lines()
    try:
        wanted = settings.load(asked.config, asked.epoch, parse.OWN)
    except OptionError as error:
        return application.refused("report", error)
    return application.guarded(lambda: _run(asked, wanted))


def _run(asked: argparse.Namespace, wanted: IngestSettings) -> int:
    lake = Lake(TableWriter(wanted.path))
    if contract.application_of(lake.table) == "aggregate":
        raise OptionError(f"{wanted.path}: is a table of aggregate: it has figures, not messages")
    spark = application.spark("report", asked)
    try:
        found = figures(spark, lake.files() + lake.files(rejects=True), asked.hours)
    finally:
        spark.stop()
    asking = ask(wanted, lake, asked.groups)
    if not asked.dry_run:
        write(asked.out, text_of(wanted, found, asking))
    span = found["span"]
    told = {
        "rows": found["rows"],
        "topics": len(found["topics"]),
        "from": _iso(span.start) if span else None,
        "to": _iso(span.end) if span else None,
        "skewed": found["skewed"],
        "behind": asking.get("behind"),
        "differences": asking.get("differences"),
    }
    print(json.dumps(told), flush=True)
    return 0


def page_of_folder(spark: SparkSession, wanted: IngestSettings, out: Path, groups: str) -> None:
    """Write the page of what ingest has landed once, without a configuration file."""
    found = figures(spark, [str(one) for one in sorted(wanted.path.rglob("*.parquet"))], 24)
    try:
        asking = ask_of_folder(spark, wanted) | lags_of_groups(wanted, groups)
    except SourceError as error:
        asking = {"why": str(error)}
    write(out, text_of(wanted, found, asking))


def ask_of_folder(spark: SparkSession, wanted: IngestSettings) -> dict[str, Any]:
    """Return how topics and the rows of a folder differ: by numbers, and by offsets."""
    brokers = TopicBrokers(parse_options(wanted.source_options()))
    queues = brokers.queues()
    first, latest = brokers.earliest(queues), brokers.latest(queues)
    rows = spark.read.parquet(str(wanted.path)).groupBy("topic", "shard", "queue")
    counted = rows.agg(F.count(F.lit(1)), F.max("offset") + 1).collect()
    had = {MessageQueue(*row[:3]): (row[3], row[4]) for row in counted}
    listed, lags = [], []
    for queue, begin in first.items():
        count, end = had.get(queue, (0, begin))
        place = {"topic": queue.topic, "shard": queue.shard, "queue": queue.queue_id}
        if count != end - begin:
            what = f"{count} rows of {end - begin} messages"
            listed.append({"kind": "rows", "what": what} | place)
        if latest[queue] > end:
            lags.append((str(queue), latest[queue] - end))
    told = {"behind": sum(lag for _, lag in lags), "differences": len(listed)}
    return told | {"list": listed, "lags": lags}


def lags_of_groups(wanted: IngestSettings, groups: str) -> dict[str, Any]:
    """Return how far groups are behind each topic."""
    brokers = TopicBrokers(parse_options(wanted.source_options()))
    named = [one.strip() for one in groups.split(",") if one.strip()]
    sums: dict[tuple[str, str], int] = {}
    for group in named:
        queues = brokers.queues()
        first, latest = brokers.earliest(queues), brokers.latest(queues)
        done = brokers.committed(group, queues)
        for queue in queues:
            key, begin = (group, queue.topic), max(done.get(queue, 0), first[queue])
            sums[key] = sums.get(key, 0) + max(0, latest[queue] - begin)
    return {"groups": [(*key, lag) for key, lag in sums.items()]} if named else {}


def figures(spark: SparkSession, files: Sequence[str], hours: int) -> dict[str, Any]:
    """Return what the page says of messages."""
    built = build(spark, files, hours)
    if built is None:
        return {
            "span": None,
            "rates": [],
            "latencies": [],
            "rows": 0,
            "topics": {},
            "skewed": 0,
        } | {
            "damaged": {},
            "reasons": [],
        }
    rows, span = built
    rows = rows.cache()
    try:
        rates = (
            rows.groupBy("topic", "at")
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.coalesce(F.sum("size"), F.lit(0)).alias("bytes"),
                F.count_if(~F.col("good")).alias("damaged"),
                F.count_if(F.col("latency") < 0).alias("skewed"),
            )
            .collect()
        )
        known = rows.where("latency >= 0")
        latencies = (
            known.groupBy("at").agg(F.percentile_approx("latency", list(PERCENTILES)).alias("ms"))
        ).collect()
        reasons = (
            rows.where("reject_reason is not null")
            .groupBy("topic", "reject_reason")
            .count()
            .orderBy(F.desc("count"), "topic", "reject_reason")
            .limit(LISTED)
            .collect()
        )
    finally:
        rows.unpersist()
    topics: dict[str, list[int]] = {}
    for row in rates:
        sums = topics.setdefault(row.topic, [0, 0, 0])
        for at, name in enumerate(("rows", "bytes", "damaged")):
            sums[at] += row[name]
    return {
        "span": span,
        "rates": sorted(rates, key=lambda row: row.at),
        "latencies": sorted(latencies, key=lambda row: row.at),
        "rows": sum(row.rows for row in rates),
        "skewed": sum(row.skewed for row in rates),
        "topics": dict(sorted(topics.items(), key=lambda one: (-one[1][1], -one[1][0], one[0]))),
        "reasons": [(row.topic, row.reject_reason, row["count"]) for row in reasons],
    }


def ask(wanted: IngestSettings, lake: Lake, groups: str) -> dict[str, Any]:
    """Return what brokers say of the table, or why they do not."""
    try:
        told = audit.audit(wanted, None)
        brokers = TopicBrokers(parse_options(wanted.source_options()))
        latest, ends = brokers.latest(brokers.queues()), dict(lake.history.last.ends)
        first = brokers.earliest(queue for queue in latest if queue not in ends)
        of_groups = lags_of_groups(wanted, groups)
    except SourceError as error:
        return {"why": str(error)}
    lags = [(str(queue), end - (ends | first)[queue]) for queue, end in latest.items()]
    lags = sorted((one for one in lags if one[1] > 0), key=lambda one: -one[1])
    return told | {"lags": lags[:LISTED]} | of_groups


def text_of(wanted: IngestSettings, found: dict[str, Any], asking: dict[str, Any]) -> str:
    """Return the page."""
    span, topics = found["span"], list(found["topics"])
    facts = {"table": str(wanted.path), "rows": f"{found['rows']:,}"}
    if "differences" in asking:
        facts["differences to the topics"] = f"{asking['differences']:,}"
    if span is not None:
        facts["time"] = f"{_iso(span.start)} to {_iso(span.end)}"
    facts["stored before they were made"] = f"{found['skewed']:,}"
    facts["behind"] = f"{asking['behind']:,}" if "behind" in asking else asking["why"]
    sums = [[name, *found["topics"][name]] for name in topics[:LISTED]]
    parts: list[Plot | Grid] = [
        Plot("Messages", "a second", _lines(found, span, topics, "rows")),
        Plot("Bodies", "bytes a second", _lines(found, span, topics, "bytes")),
        Plot("From producer to broker", "milliseconds", _percentiles(found["latencies"])),
        Grid("Largest topics", ("topic", "messages", "bytes", "damaged"), sums),
        Grid("Rejected", ("topic", "reason", "messages"), found["reasons"]),
    ]
    if "why" not in asking:
        parts.append(Grid("Behind", ("queue", "messages"), asking["lags"]))
        if "groups" in asking:
            columns = ("group", "topic", "messages")
            parts.append(Grid("Lag of groups", columns, asking["groups"]))
        listed = [(one["kind"], _place(one), one["what"]) for one in asking["list"][:LISTED]]
        parts.append(Grid("Differences to the topics", ("kind", "where", "what"), listed))
    return page(f"Topics of {wanted.path.name}", facts, parts)


def _lines(
    found: dict[str, Any], span: Span | None, topics: Sequence[str], name: str
) -> dict[str, list[tuple[int, float]]]:
    """Return a line for each of the largest topics; where one has nothing, it is at zero."""
    if span is None or not any(row[name] for row in found["rates"]):
        return {}
    values = {(row.topic, row.at): row[name] / span.step for row in found["rates"]}
    times = range(min(row.at for row in found["rates"]), span.end, span.step)
    return {topic: [(at, values.get((topic, at), 0.0)) for at in times] for topic in topics[:SHOWN]}


def _percentiles(rows: Sequence[Row]) -> dict[str, list[tuple[int, float]]]:
    if not rows:
        return {}
    names = [f"p{round(100 * one)}" for one in PERCENTILES]
    return {name: [(row.at, row.ms[at]) for row in rows] for at, name in enumerate(names)}


def _place(one: dict[str, Any]) -> str:
    if "topic" not in one:
        return ""
    place = f"{one['topic']}/{one['shard']}/{one['queue']}"
    return f"{place} {one['from']}–{one['to']}" if "from" in one else place


def write(path: Path, text: str) -> None:
    """Put a page into its place, whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


if __name__ == "__main__":
    sys.exit(main())
