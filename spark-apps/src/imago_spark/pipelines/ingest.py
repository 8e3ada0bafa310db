"""Lands topics as Parquet, partitioned by the date of storing, and checks every body's checksum.

    python -m imago_spark.pipelines.ingest --bootstrap 127.0.0.1:9876 --topics orders --path OUT

Prints one line of JSON: rows, rows whose body does not match the checksum stored with it, seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

CRC_MASK = 0x7FFFFFFF
"""Both protocols' checksum is CRC-32 without its highest bit."""


def build(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Return the topics' rows with their date and whether the body is what was stored.

    A compressed body has the checksum of its compressed form: there is nothing to compare.
    """
    rows = spark.read.format("imago").options(**options).load()
    is_compressed = F.col("sys_flag").bitwiseAND(1) != 0
    matches = F.crc32("value").bitwiseAND(CRC_MASK) == F.col("body_crc")
    return rows.withColumn("date", F.to_date("store_time")).withColumn(
        "crc_ok", is_compressed | matches
    )


def land(frame: DataFrame, path: str) -> dict[str, int]:
    """Write the rows; return how many there were and how many bodies were damaged."""
    seen = Observation("landed")
    bad = F.sum(F.when(F.col("crc_ok"), 0).otherwise(1))
    observed = frame.observe(
        seen, F.count(F.lit(1)).alias("rows"), F.coalesce(bad, F.lit(0)).alias("damaged")
    )
    observed.write.mode("overwrite").partitionBy("date").parquet(path)
    return {name: int(value) for name, value in seen.get.items()}


def session(
    name: str, *, cores: int, memory: str, is_short: bool = False, tries: int = 1
) -> SparkSession:
    """Return a local session whose workers run this very Python.

    `is_short`: for seconds of work, which end before a better compiled JVM would pay. `tries`: how
    often a task may be run before the job fails.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    java_options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" if is_short else ""
    return (
        SparkSession.builder.appName(name)
        .master(f"local[{cores},{tries}]")
        .config("spark.driver.memory", memory)
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.parquet.compression.codec", "zstd")
        .getOrCreate()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program. Exit code 1 if a body was damaged."""
    parser = argparse.ArgumentParser(prog="ingest", description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="name-service addresses")
    parser.add_argument("--topics", required=True, help="names, joined with commas")
    parser.add_argument("--path", required=True, help="folder to write")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="1g", help="of the driver's JVM")
    parser.add_argument("--short", action="store_true", help="start fast, for little data")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="say READY once Spark is up, then wait for a line on standard input",
    )
    asked = parser.parse_args(arguments)
    spark = session("imago-ingest", cores=asked.cores, memory=asked.memory, is_short=asked.short)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        # Nothing is read yet: the offsets are looked up when the rows are written.
        frame = build(spark, {"bootstrap": asked.bootstrap, "subscribe": asked.topics})
        if asked.wait:
            print("READY", flush=True)
            if not sys.stdin.readline():
                return 0  # whoever started us has gone
        began = time.monotonic()
        landed = land(frame, asked.path)
    finally:
        spark.stop()
    print(json.dumps({**landed, "seconds": round(time.monotonic() - began, 3)}), flush=True)
    return 1 if landed["damaged"] else 0


if __name__ == "__main__":
    sys.exit(main())
