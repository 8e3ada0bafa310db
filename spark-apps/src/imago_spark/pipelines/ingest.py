"""Write topics as Parquet, partitioned by the date of storing; verify every body's checksum.

    python -m imago_spark.pipelines.ingest --config FILE [--epoch N]
    python -m imago_spark.pipelines.ingest --bootstrap 127.0.0.1:9876 --topics orders --path OUT

With a configuration file (`pipelines.settings`) it is a stream into a table (`pipelines.table`)
that continues where the last run ended, until SIGTERM, or with `trigger = "available-now"` until
it has written all messages that existed at its start. `--epoch` is the run's, as `POST
/admin/v1/pipelines/{name}/epoch` granted it: under a higher epoch nothing more is committed.

Without a file it writes the current messages and replaces the folder's content.

Prints one line of JSON: rows, rows whose body does not match its stored checksum, and in the second
form seconds. Exit codes: 0 done, 1 failed or (second form) a body was damaged, 2 wrong
configuration, 5 another run took over.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.errors import OptionError
from imago_spark.pipelines import settings, streaming
from imago_spark.pipelines.footers import CHECKED
from imago_spark.pipelines.landing import checked
from imago_spark.pipelines.session import is_submitted, session, submitted_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

EXIT_USAGE = 2


def build(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Return the topics' rows with their date and whether the body matches its checksum."""
    return checked(spark.read.format("imago").options(**options).load())


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
    parser = argparse.ArgumentParser(
        prog="ingest", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, help="configuration file of a stream")
    parser.add_argument("--epoch", type=int, help="of this run")
    parser.add_argument("--bootstrap", help="name-service addresses")
    parser.add_argument("--topics", help="names, joined with commas")
    parser.add_argument("--path", help="folder to write")
    parser.add_argument("--cores", type=int, default=2, help="where nobody has submitted it")
    parser.add_argument("--memory", default="1g", help="of the driver's JVM, likewise")
    parser.add_argument("--short", action="store_true", help="start fast, for little data")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="say READY once Spark is up, then wait for a line on standard input",
    )
    return parser


def _spark(asked: argparse.Namespace) -> SparkSession:
    if is_submitted():
        return submitted_session("imago-ingest")
    spark = session("imago-ingest", cores=asked.cores, memory=asked.memory, is_short=asked.short)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _stream(asked: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        wanted = settings.load(asked.config, asked.epoch)
    except OptionError as error:
        print(f"ingest: {error}", file=sys.stderr)
        return EXIT_USAGE
    return streaming.run(wanted, lambda: _spark(asked))


def _once(asked: argparse.Namespace) -> int:
    if missing := [name for name in ("bootstrap", "topics", "path") if not getattr(asked, name)]:
        print(f"ingest: --{missing[0]} is missing, or --config", file=sys.stderr)
        return EXIT_USAGE
    spark = _spark(asked)
    try:
        # Nothing is read yet: the offsets are looked up when the rows are written.
        frame = build(spark, {"bootstrap": asked.bootstrap, "subscribe": asked.topics})
        if asked.wait:
            print("READY", flush=True)
            if not sys.stdin.readline():
                return 0  # our parent process has gone
        began = time.monotonic()
        landed = land(frame, asked.path)
    finally:
        spark.stop()
    print(json.dumps({**landed, "seconds": round(time.monotonic() - began, 3)}), flush=True)
    return 1 if landed["damaged"] else 0


if __name__ == "__main__":
    sys.exit(main())
