"""Write topics as Parquet, partitioned by the date of storing; verify every body's checksum.

    python -m imago_spark.pipelines.ingest --config FILE [--epoch N]
    python -m imago_spark.pipelines.ingest --bootstrap 127.0.0.1:9876 --topics orders --path OUT
        [--page report.html]

With a configuration file (`pipelines.settings`) it is a stream into a table (`pipelines.tables`)
that continues where the last run ended, until SIGTERM, or with `trigger = "available-now"` until
it has written all messages that existed at its start. `--epoch` is the run's, as `POST
/admin/v1/pipelines/{name}/epoch` granted it: under a higher epoch nothing more is committed.

Without a file it writes the current messages and replaces the folder's content; `--page` also
writes the page about them that the application `report` writes of a table.

Prints one line of JSON: rows, rows whose body does not match its stored checksum, and in the second
form seconds. Exit codes: 0 done, 1 failed or (second form) a body was damaged, 2 wrong
configuration, 5 another run took over.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.errors import OptionError
from imago_spark.pipelines import application, settings, streaming
from imago_spark.pipelines.landing import Shape, checked
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
    return streaming.run(wanted, lambda: application.spark("ingest", asked), SHAPE)


def _once(asked: argparse.Namespace) -> int:
    if missing := [name for name in ("bootstrap", "topics", "path") if not getattr(asked, name)]:
        return application.refused("ingest", f"--{missing[0]} is missing, or --config")
    if (Path(asked.path) / "_imago").exists():
        return application.refused(
            "ingest", f"--path {asked.path}: is a table of a pipeline, which this would replace"
        )
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

    topics = tuple(asked.topics.split(","))
    wanted = settings.IngestSettings(
        bootstrap=asked.bootstrap, topics=topics, path=Path(asked.path), checkpoint=""
    )
    page_of_folder(spark, wanted, asked.page, asked.groups)


if __name__ == "__main__":
    sys.exit(main())
