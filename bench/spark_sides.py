"""The two sides that `bench.spark` compares: the same rows, the same columns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

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

    def write(self, frame: DataFrame, topic: str) -> None:
        """Write keys and values, as whoever sets nothing does."""
        ...


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

    def fill(self, frame: DataFrame, topic: str) -> None:
        """Write the rows that are to be read, in few requests."""
        self._write(frame, topic, {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "100"})

    def write(self, frame: DataFrame, topic: str) -> None:
        self._write(frame, topic, {})

    def _write(self, frame: DataFrame, topic: str, more: dict[str, str]) -> None:
        options = {"kafka.bootstrap.servers": self.address, "topic": topic} | PATIENT | more
        frame.write.format("kafka").options(**options).mode("append").save()
