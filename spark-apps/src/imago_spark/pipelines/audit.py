"""Compare tables with their topics: what is missing, twice, damaged, or of another topic.

    python -m imago_spark.pipelines.audit --config FILE [--deep]

FILE is the configuration of the run that writes the table, of ingest or of parse. The audit writes
nothing, and may run beside it: it looks at what was committed when it began. In its part `[config]`
`tables` may name further tables of these topics, joined with commas, also of aggregate: with them
the audit is of a whole pipeline.

It compares the commits with the files that they name and with the offsets that brokers have.
`--deep` reads all rows that both have, from the table and from the topic, and compares their
columns; body and checksum are among them in tables of ingest. It computes figures once more, where
all rows are still there and none came too late.

Prints one line of JSON: `rows` of the table, those whose body is `damaged`, queues, `behind` (what
the table does not have yet), `compared` (rows that were read, with --deep), of each topic its
messages and rows, how many `differences`, and the first of them as `list`. Of several tables it has
each as one of `tables`, and all `differences`. Exit codes: 0 no difference, 1 failed, 2 wrong
configuration, 3 differences.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_client.message_queue import MessageQueue
from imago_spark.broker import TopicBrokers
from imago_spark.errors import OptionError, SourceError
from imago_spark.options import parse_options
from imago_spark.pipelines import application, parse, settings
from imago_spark.pipelines.aggregate.checking import figures_differ
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.history import (
    Lake,
    commits_of,
    history_of,
    number_of,
    present_files,
)
from imago_spark.pipelines.tables.table import TableWriter
from imago_spark.schema import CORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from imago_spark.offsets import Offsets
    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.commits import Commit
    from imago_spark.pipelines.tables.history import History, Range
    from imago_spark.progress import Progress

log = logging.getLogger(__name__)
T = TypeVar("T")

OWN: Final = (*parse.OWN, "tables")
EXIT_DIFFERENCES: Final = 3
LISTED_MAX: Final = 100
"""Differences in the report; it has the number of all."""
_PLACE: Final = ("topic", "shard", "queue")


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not in the table as it is in the topic."""

    kind: str
    what: str
    queue: MessageQueue | None = None
    start: int | None = None
    end: int | None = None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": self.kind, "what": self.what}
        if self.queue is not None:
            found |= {"topic": self.queue.topic, "shard": self.queue.shard}
            found["queue"] = self.queue.queue_id
        return found if self.start is None else found | {"from": self.start, "to": self.end}


def offsets_differ(
    history: History, first: Offsets, now: Progress, *, from_latest: bool = False
) -> Iterator[Difference]:
    """Compare a table's offsets with the `first` ones that brokers have, and their ends."""
    last, ends = history.last, now.offsets
    if None not in (last.cluster, now.cluster) and last.cluster != now.cluster:
        what = f"the table is of cluster {last.cluster}, these brokers are of {now.cluster}"
        yield Difference("other cluster", what)
        return
    for queue in sorted(history.ranges.keys() | ends.keys()):
        had = queue in history.ranges
        known, found = last.incarnations.get((queue.topic, queue.shard)), now.incarnation(queue)
        if queue not in ends:
            yield Difference("no queue", "the topic has no such queue any more", queue)
        elif known is not None and found is not None and not known.is_same(found):
            what = "the topic was deleted and created again since: the table has the former one"
            yield Difference("other topic", what, queue)
        elif had:
            yield from _queue_differs(history, queue, first[queue], ends[queue], from_latest)


def _queue_differs(
    history: History, queue: MessageQueue, first: int, end: int, from_latest: bool
) -> Iterator[Difference]:
    had = history.had(queue)
    if first < had[0][0] and not from_latest:
        what = "the topic has them, the table begins later"
        yield Difference("missing", what, queue, first, had[0][0])
    for start, stop in history.gaps(queue):
        what = "the topic has them" if first < stop else "gone from the topic, too"
        yield Difference("missing", what, queue, start, stop)
    if had[-1][1] < first:
        what = "gone from the topic before the table had them"
        yield Difference("lost", what, queue, had[-1][1], first)
    if had[-1][1] > end:
        what = "the table has them, the topic ends before: its history was cut"
        yield Difference("beyond", what, queue, end, had[-1][1])


def files_differ(table: TableWriter, commits: Iterable[Commit]) -> Iterator[Difference]:
    """Compare the files that commits name with those that readers find."""
    commits = list(commits)
    last = commits[-1].number if commits else -1
    present = [file for _, file in present_files(commits)]
    named = {file.path for file in present}
    if commits:
        named |= set(commits[-1].removed)  # they are going
    for file in present:
        path = table.place(file)
        if not path.exists():
            yield Difference("file", f"{file.path}: is gone, with {file.rows} rows")
        elif path.stat().st_size != file.bytes:
            what = f"{file.path}: has {path.stat().st_size} bytes, was written with {file.bytes}"
            yield Difference("file", what)
    for pattern in ("date=*/*.parquet", "_rejects/date=*/*.parquet"):
        for path in sorted(table.path.glob(pattern)):
            name = path.relative_to(table.path).as_posix()
            number = path.name.partition("-")[0]
            if name not in named and not (number.isdecimal() and int(number) > last):
                yield Difference("file", f"{name}: no commit names it, and readers find its rows")


def common(history: History, first: Offsets, ends: Offsets) -> dict[MessageQueue, list[Range]]:
    """Return the offsets that table and topic both have."""
    found = {}
    for queue, had in history.ranges.items():
        if queue in ends:
            low, high = first[queue], ends[queue]
            both = [(max(low, start), min(high, end)) for start, end in had]
            if both := [one for one in both if one[0] < one[1]]:
                found[queue] = both
    return found


def within(ranges: dict[MessageQueue, list[Range]]) -> Column:
    """Return whether a row is of these offsets."""
    wanted = [
        (F.col("topic") == queue.topic)
        & (F.col("shard") == queue.shard)
        & (F.col("queue") == queue.queue_id)
        & F.col("offset").between(start, end - 1)
        for queue, parts in ranges.items()
        for start, end in parts
    ]
    return reduce(lambda one, other: one | other, wanted)


def _offsets_json(offsets: Offsets) -> str:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue, at in offsets.items():
        shards = found.setdefault(queue.topic, {})
        shards.setdefault(queue.shard, {})[str(queue.queue_id)] = at
    return json.dumps(found)


def present(spark: SparkSession, files: Sequence[str], history: History) -> DataFrame:
    """Return the rows of files, less those of topics that were deleted and made anew since."""
    stored = spark.read.option("mergeSchema", "true").parquet(*files)
    stored = stored.withColumn("_number", number_of(history))
    for (topic, shard), number in history.since.items():
        former = (F.col("topic") == topic) & (F.col("shard") == shard)
        former &= F.col("_number") < number
        stored = stored.where(~former)
    return stored


def rows_differ(
    spark: SparkSession,
    bootstrap: str,
    files: Sequence[str],
    history: History,
    ranges: dict[MessageQueue, list[Range]],
) -> Iterator[Difference]:
    """Compare the rows of these ranges, column by column, in files and topic."""
    stored = present(spark, files, history)
    columns = [name for name in CORE if name in stored.columns]
    lows = {queue: parts[0][0] for queue, parts in ranges.items()}
    highs = {queue: parts[-1][1] for queue, parts in ranges.items()}
    assigned: dict[str, dict[str, list[int]]] = {}
    for queue in ranges:
        assigned.setdefault(queue.topic, {}).setdefault(queue.shard, []).append(queue.queue_id)
    sent = spark.read.format("imago").options(
        bootstrap=bootstrap,
        assign=json.dumps(assigned),
        columns=",".join(columns),
        startingOffsets=_offsets_json(lows),
        endingOffsets=_offsets_json(highs),
    )
    both = within(ranges)
    table, topic_rows = stored.where(both), sent.load().where(both)
    sums = [_sums(one, columns) for one in (table, topic_rows)]
    wrong = [queue for queue in ranges if sums[0].get(queue) != sums[1].get(queue)]
    if wrong:
        some = within({queue: ranges[queue] for queue in wrong})
        yield from _listed(table.where(some), topic_rows.where(some), columns)


def _fingerprint(columns: Sequence[str]) -> Column:
    """Return a hash of a row; null has a text of its own, since the hash passes over nulls."""
    texts = [
        F.base64(F.col(name)) if name == "value" else F.col(name).cast("string") for name in columns
    ]
    return F.xxhash64(*(F.coalesce(text, F.lit("\0")) for text in texts))


def _sums(rows: DataFrame, columns: Sequence[str]) -> dict[MessageQueue, tuple[int, Any]]:
    hashed = _fingerprint(columns).cast("decimal(38,0)")
    counted = rows.groupBy(*_PLACE).agg(F.count(F.lit(1)), F.sum(hashed))
    return {MessageQueue(*row[:3]): (row[3], row[4]) for row in counted.collect()}


def _listed(table: DataFrame, topic: DataFrame, columns: Sequence[str]) -> Iterator[Difference]:
    """Find the rows that differ, in queues whose sums do."""
    key = [*_PLACE, "offset"]
    named = [
        rows.withColumn("print", _fingerprint(columns))
        .groupBy(*key)
        .agg(
            F.count(F.lit(1)).alias(f"n_{name}"),
            F.min("print").alias(f"print_{name}"),
            F.max("print").alias(f"other_{name}"),
        )
        for name, rows in (("table", table), ("topic", topic))
    ]
    joined = named[0].join(named[1], key, "full_outer")
    differs = (
        F.col("n_table").isNull()
        | F.col("n_topic").isNull()
        | (F.col("n_table") != F.col("n_topic"))
        | (F.col("print_table") != F.col("print_topic"))
        | (F.col("other_table") != F.col("other_topic"))
    )
    for row in joined.where(differs).orderBy(*key).toLocalIterator():
        queue, at = MessageQueue(row.topic, row.shard, row.queue), row.offset
        if row.n_table is None:
            kind, what = "missing", "the commits name it, the files do not have it"
        elif row.n_topic is None:
            kind, what = "beyond", "the files have it, the topic does not"
        elif row.n_table > 1:
            kind, what = "twice", f"the files have it {row.n_table} times"
        else:
            kind, what = "other row", "a column differs between files and topic"
        yield Difference(kind, what, queue, at, at + 1)


def undisturbed(table: TableWriter, look: Callable[[list[Commit]], T]) -> T:
    """Return what a look at a table finds, if need be a later one: files that `compact` replaced
    meanwhile would be missed.
    """
    while True:
        commits = commits_of(table)
        try:
            found = look(commits)
        except (PySparkException, Py4JError):
            if not _replaced_since(table, commits):
                raise
        else:
            if not _replaced_since(table, commits):
                return found
        log.info("files were replaced meanwhile: looking again")


def _replaced_since(table: TableWriter, commits: Sequence[Commit]) -> bool:
    last = table.read_last()
    numbers = range(commits[-1].number + 1, last.number + 1 if last else 0)
    return any(table.read(number).removed for number in numbers)


def audit(wanted: IngestSettings, spark: SparkSession | None) -> dict[str, Any]:
    """Return the report; with a session also of what rows hold."""
    table = TableWriter(wanted.path)
    return undisturbed(table, lambda commits: _audit(wanted, spark, table, commits))


def _audit(
    wanted: IngestSettings,
    spark: SparkSession | None,
    table: TableWriter,
    commits: list[Commit],
) -> dict[str, Any]:
    history = history_of(commits)
    brokers = TopicBrokers(parse_options(wanted.source_options()))
    # The ends last: the table never has what brokers had not when it was asked.
    first = brokers.earliest(brokers.all_queues())
    now = brokers.ends(first)
    found = [
        *offsets_differ(history, first, now, from_latest=wanted.from_latest),
        *files_differ(table, commits),
    ]
    behind = sum(
        max(0, end - max(first[queue], history.had(queue)[-1][1] if queue in history.ranges else 0))
        for queue, end in now.offsets.items()
    )
    topics: dict[str, dict[str, int]] = {}
    for queue, end in now.offsets.items():
        sums = topics.setdefault(queue.topic, {"messages": 0, "rows": 0})
        sums["messages"] += end - first[queue]
        sums["rows"] += sum(stop - start for start, stop in history.ranges.get(queue, ()))
    told: dict[str, Any] = {
        "topics": topics,
        "rows": history.last.rows,
        "damaged": history.last.damaged,
        "queues": len(now.offsets),
        "behind": behind,
    }
    comparable = not any(one.kind in ("other cluster", "other topic") for one in found)
    if spark is not None and comparable:
        ranges = common(history, first, now.offsets)
        files = [
            str(path) for _, file in present_files(commits) if (path := table.place(file)).exists()
        ]
        if ranges and files:
            found += rows_differ(spark, wanted.bootstrap, files, history, ranges)
        told["compared"] = sum(end - start for parts in ranges.values() for start, end in parts)
    listed = [one.to_json() for one in found[:LISTED_MAX]]
    return told | {"differences": len(found), "list": listed}


def audit_figures(wanted: IngestSettings, spark: SparkSession | None) -> dict[str, Any]:
    """Return the report on a table of aggregate."""
    table = TableWriter(wanted.path)

    def look(commits: list[Commit]) -> dict[str, Any]:
        found = list(files_differ(table, commits))
        if spark is not None:
            found += [Difference(*one) for one in figures_differ(spark, wanted, Lake(table))]
        listed = [one.to_json() for one in found[:LISTED_MAX]]
        return {"rows": commits[-1].rows, "differences": len(found), "list": listed}

    return undisturbed(table, look)


def audit_all(wanted: IngestSettings, spark: SparkSession | None) -> dict[str, Any]:
    """Return the report on the table of a configuration, or on that and its further `tables`."""
    tables: dict[str, dict[str, Any]] = {}
    for path in (wanted.path, *others_of(wanted)):
        one = replace(wanted, path=path)
        is_of_figures = contract.application_of(TableWriter(path)) == "aggregate"
        tables[str(path)] = (audit_figures if is_of_figures else audit)(one, spark)
    if len(tables) == 1:
        return tables[str(wanted.path)]
    return {"tables": tables, "differences": sum(one["differences"] for one in tables.values())}


def others_of(wanted: IngestSettings) -> list[Path]:
    """Return the further tables. OptionError: one is no folder of a volume."""
    named = [one.strip() for one in str(wanted.own.get("tables", "")).split(",")]
    for one in named:
        if one and not one.startswith("/"):
            raise OptionError(f"config.tables: {one!r}, must be folders of tables, like /lake/x")
    return [Path(one) for one in named if one]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    parser = application.parser("audit", __doc__)
    parser.add_argument("--deep", action="store_true", help="read and compare all rows")
    asked = parser.parse_args(arguments)
    if asked.config is None:
        return application.refused("audit", "--config is missing")
    application.log_lines()
    try:
        wanted = settings.load(asked.config, asked.epoch, OWN, unneeded=("checkpoint",))
        others_of(wanted)
    except OptionError as error:
        return application.refused("audit", error)
    try:
        spark = application.spark("audit", asked) if asked.deep else None
        told = audit_all(wanted, spark)
    except (SourceError, PySparkException, Py4JError) as error:
        return application.ended(application.EXIT_FAILED, str(error))
    print(json.dumps(told), flush=True)
    return EXIT_DIFFERENCES if told["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
