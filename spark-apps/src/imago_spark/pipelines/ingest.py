"""Write topics as Parquet, partitioned by the date of storing; verify every body's checksum.

    python -m imago_spark.pipelines.ingest --config FILE [--epoch N] [--dry-run]
    python -m imago_spark.pipelines.ingest --bootstrap 127.0.0.1:9876 --topics orders --path OUT
        [--page report.html] [--dry-run]

With a configuration file (`pipelines.settings`) it is a stream into a table (`pipelines.tables`)
that continues where the last run ended, until SIGTERM, or with `trigger = "available-now"` until
it has written all messages that existed at its start. `--epoch` is the run's, as `POST
/admin/v1/pipelines/{name}/epoch` granted it: under a higher epoch nothing more is committed.

Without a file it writes the current messages and replaces the folder's content; `--page` also
writes the page about them that the application `report` writes of a table.

`--dry-run` starts no Spark, writes nothing, and prints how many rows a run would bring, about how
many bytes they have in their topics, how many rows were there before, and those of each topic.

Else it prints one line of JSON: rows, rows whose body does not match its stored checksum, and in
the second form seconds. Exit codes: 0 done, 1 failed or (second form) a body was damaged, 2 wrong
configuration, 5 another run took over.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.streaming.datasource import ReadAllAvailable

from imago_spark.broker import TopicBrokers
from imago_spark.errors import OptionError
from imago_spark.offsets import ranges
from imago_spark.options import parse_options
from imago_spark.pipelines import application, settings, streaming
from imago_spark.pipelines.landing import Shape, beginning, checked
from imago_spark.pipelines.tables.contract import check_application
from imago_spark.pipelines.tables.table import TableWriter
from imago_spark.progress import Progress
from imago_spark.reader import StreamReader
from imago_spark.schema import CHECKED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

SHAPE = Shape()


def build(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Return the topics' rows with their date and whether the body matches its checksum."""
    return checked(spark.read.format("imago").options(**{"columns": "core"} | options).load())


def land(frame: DataFrame, path: str) -> dict[str, int]:
    """Write the rows; return their number and the number of damaged bodies."""
    seen = Observation("landed")
    bad = F.sum(F.when(F.col(CHECKED), 0).otherwise(1))
    observed = frame.observe(
        seen, F.count(F.lit(1)).alias("rows"), F.coalesce(bad, F.lit(0)).alias("damaged")
    )
    observed.write.mode("overwrite").partitionBy("date").parquet(path)
    return {name: int(value) for name, value in seen.get.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    asked = _parser().parse_args(arguments)
    if asked.config is not None:
        return _stream(asked)
    return _once(asked)


def _parser() -> argparse.ArgumentParser:
    parser = application.parser("ingest", __doc__)
    parser.add_argument("--bootstrap", help="name-service addresses")
    parser.add_argument("--topics", help="names, joined with commas")
    parser.add_argument("--path", help="folder to write")
    parser.add_argument("--page", type=Path, help="file for a page about what was written")
    parser.add_argument("--groups", default="", help="whose lag the page has, joined with commas")
    parser.add_argument("--dry-run", action="store_true", help="say what it would bring")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="say READY once Spark is up, then wait for a line on standard input",
    )
    return parser


def _stream(asked: argparse.Namespace) -> int:
    application.log_lines()
    try:
        wanted = settings.load(asked.config, asked.epoch)
    except OptionError as error:
        return application.refused("ingest", error)
    if asked.dry_run:
        return _told(wanted)
    return streaming.run(wanted, lambda: application.spark("ingest", asked), SHAPE)


def _once(asked: argparse.Namespace) -> int:
    if missing := [name for name in ("bootstrap", "topics", "path") if not getattr(asked, name)]:
        return application.refused("ingest", f"--{missing[0]} is missing, or --config")
    if (Path(asked.path) / "_imago").exists():
        return application.refused(
            "ingest", f"--path {asked.path}: is a table of a pipeline, which this would replace"
        )
    if asked.dry_run:
        return _told(_settings(asked))
    spark = application.spark("ingest", asked)
    try:
        # Nothing is read yet: the offsets are looked up when the rows are written.
        frame = build(spark, {"bootstrap": asked.bootstrap, "subscribe": asked.topics})
        if asked.wait:
            print("READY", flush=True)
            if not sys.stdin.readline():
                return 0  # our parent process has gone
        began = time.monotonic()
        landed = land(frame, asked.path)
        seconds = time.monotonic() - began
        if asked.page is not None:
            _write_page(spark, asked)
    finally:
        spark.stop()
    print(json.dumps({**landed, "seconds": round(seconds, 3)}), flush=True)
    return 1 if landed["damaged"] else 0


def _write_page(spark: SparkSession, asked: argparse.Namespace) -> None:
    from imago_spark.pipelines.report.reporting import page_of_folder

    page_of_folder(spark, _settings(asked), asked.page, asked.groups)


def _settings(asked: argparse.Namespace) -> settings.IngestSettings:
    topics = tuple(asked.topics.split(","))
    return settings.IngestSettings(
        bootstrap=asked.bootstrap, topics=topics, path=Path(asked.path), checkpoint=""
    )


def _told(wanted: settings.IngestSettings) -> int:
    def told() -> int:
        print(json.dumps(would_land(wanted)), flush=True)
        return 0

    return application.guarded(told)


def would_land(wanted: settings.IngestSettings) -> dict[str, object]:
    """Return what a run would bring to the table as it is."""
    table = streaming.table_of(wanted)
    if isinstance(table, TableWriter):
        check_application(table, SHAPE.application)
    stands = table.read_last()
    options = parse_options(
        wanted.source_options() | {"startingOffsets": beginning(wanted, stands)}
    )
    reader = StreamReader(options)
    try:
        begins = reader.initialOffset()
        ends = reader.latestOffset(begins, ReadAllAvailable())
        start, end = Progress.from_json(begins).offsets, Progress.from_json(ends).offsets
        planned = ranges(start, end)
        sizes = TopicBrokers(options).row_bytes(planned)
    finally:
        reader.stop()
    rows = Counter({queue.topic: 0 for queue in end})
    for one in planned:
        rows[one.queue.topic] += one.end - one.start
    size = sum(sizes[one.queue] * (one.end - one.start) for one in planned)
    before = 0 if stands is None else stands.rows
    return {"rows": rows.total(), "bytes": round(size), "before": before, "topics": dict(rows)}


if __name__ == "__main__":
    sys.exit(main())
