"""The Spark session of an application: a local one, or the submitted one."""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

from imago_spark.pipelines.spark_home import compiled_pyspark

_OF_ALL: Final[dict[str, bool | float | int | str | None]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    # Else a driver that is killed as it writes its first plan leaves a checkpoint for nobody.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}


def session(
    name: str, *, cores: int, memory: str, is_short: bool = False, tries: int = 1
) -> SparkSession:
    """Return a local session whose workers run this very Python.

    `is_short`: for work of seconds, which ends before better JVM compilation would pay.
    `tries`: how often a task may run before the job fails.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    java_options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" if is_short else ""
    builder = (
        SparkSession.builder.appName(name)
        .master(f"local[{cores},{tries}]")
        .config("spark.driver.memory", memory)
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config(map=_OF_ALL)
    )
    with compiled_pyspark():
        return builder.getOrCreate()


def is_submitted() -> bool:
    """Whether spark-submit, or the image's entrypoint, has configured where to run."""
    return "PYSPARK_SUBMIT_ARGS" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_session(name: str) -> SparkSession:
    """Return the session that the submitter configured; days are those of UTC."""
    return SparkSession.builder.appName(name).config(map=_OF_ALL).getOrCreate()
