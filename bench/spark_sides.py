"""The two sides that `bench.spark` compares: the same rows, the same columns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from imago_spark.pipelines.landing import Landing, Shape
from imago_spark.pipelines.ranges.range_landing import run_ranges
from imago_spark.pipelines.settings import IngestSettings
from imago_spark.pipelines.streaming import StopSignal
from imago_spark.pipelines.tables.table import TableWriter
from imago_testing.java.modules import SPARK_KAFKA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Side(Protocol):
    """A broker, and how Spark reads and writes it."""

    name: ClassVar[str]

    def read(self, spark: SparkSession, topic: str, *, counts: bool = False) -> DataFrame:
        """Return a topic's rows: key, value, queue and offset, or what is enough to count them."""
        ...

    def stream(self, spark: SparkSession, topic: str) -> DataFrame:
        """Return the same as a stream from the beginning."""
        ...

    def land(self, spark: SparkSession, topic: str, path: str) -> int:
        """Write all rows as Parquet, in the way that is meant for it; return how many."""
        ...

    def write(self, frame: DataFrame, topic: str) -> None:
        """Write keys and values, as whoever sets nothing does."""
        ...


def streamed(frame: DataFrame, form: str, path: str) -> int:
    """Run a stream over all there is; return its rows."""
    options = {"checkpointLocation": f"{path}-checkpoint", "path": path}
    query = frame.writeStream.format(form).options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def connector_path() -> str:
    """Return the class path of Spark's Kafka source."""
    _, jars = SPARK_KAFKA.class_path().split(os.pathsep)
    return os.pathsep.join(map(str, sorted(Path(jars).parent.glob("*.jar"))))


PATIENT = {"kafka.request.timeout.ms": "600000", "kafka.delivery.timeout.ms": "900000"}
"""Kafka's producer loses its place where a busy machine lets its own 30 seconds pass."""


@dataclass(frozen=True, slots=True)
class Imago:
    """Our source, told which columns are wanted."""

    address: str
    name: ClassVar[str] = "imago"

    def read(self, spark: SparkSession, topic: str, *, counts: bool = False) -> DataFrame:
        columns = "offset" if counts else "key,value,queue,offset"
        options = {"bootstrap": self.address, "subscribe": topic, "columns": columns}
        return spark.read.format("imago").options(**options).load()

    def stream(self, spark: SparkSession, topic: str) -> DataFrame:
        options = {"bootstrap": self.address, "subscribe": topic}
        options |= {"columns": "key,value,queue,offset", "startingOffsets": "earliest"}
        return spark.readStream.format("imago").options(**options).load()

    def land(self, spark: SparkSession, topic: str, path: str) -> int:
        settings = IngestSettings(
            bootstrap=self.address,
            topics=(topic,),
            path=Path(path),
            checkpoint="",
            available_now=True,
            by_ranges=True,
        )
        table = TableWriter(settings.path)
        table.begin()
        landing = Landing(table, lambda: None, settings, Shape())
        run_ranges(spark, settings, landing, StopSignal(), lambda: None)
        return table.last.rows

    def write(self, frame: DataFrame, topic: str) -> None:
        options = {"bootstrap": self.address, "topic": topic}
        frame.write.format("imago").options(**options).mode("append").save()


@dataclass(frozen=True, slots=True)
class Kafka:
    """Spark's own source for Kafka, which Spark itself tells which columns are wanted."""

    address: str
    name: ClassVar[str] = "kafka"

    def read(self, spark: SparkSession, topic: str, *, counts: bool = False) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.address, "subscribe": topic}
        frame = spark.read.format("kafka").options(**options).load()
        return frame.select("offset" if counts else ["key", "value", "partition", "offset"])

    def stream(self, spark: SparkSession, topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.address, "subscribe": topic}
        options["startingOffsets"] = "earliest"
        frame = spark.readStream.format("kafka").options(**options).load()
        return frame.select("key", "value", "partition", "offset")

    def land(self, spark: SparkSession, topic: str, path: str) -> int:
        return streamed(self.stream(spark, topic), "parquet", path)

    def fill(self, frame: DataFrame, topic: str) -> None:
        """Write the rows that are to be read, in few requests."""
        self._write(frame, topic, {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "100"})

    def write(self, frame: DataFrame, topic: str) -> None:
        self._write(frame, topic, {})

    def _write(self, frame: DataFrame, topic: str, more: dict[str, str]) -> None:
        options = {"kafka.bootstrap.servers": self.address, "topic": topic} | PATIENT | more
        frame.write.format("kafka").options(**options).mode("append").save()
