"""`make bench-spark`: the Spark source and sink beside Spark's own for Kafka, in one run.

    python -m bench.spark [--rows N] [--sink-rows N] [--repeats N] [--only TEXT]

Topics of 200 B and of 1 KiB, the same rows on both sides, read by one Spark of two cores, in
turns. Counted is the CPU time of the JVM and its Python workers, which says more than seconds do
on a machine that others use, too; the brokers' own is not in it. The first turn of each only warms
up; of the others the cheapest is told. Needs Maven and a JDK for Kafka. Each line is merged into
bench/results/spark.json as soon as it is there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench import harness
from bench.spark_sides import Imago, Kafka, connector_path, streamed
from imago_client import ClientConfig, Message
from imago_client.blocking import Client
from imago_spark.pipelines.session import session
from imago_testing.java.kafka import kafka_original

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from bench.spark_sides import Side

QUEUES = 8
BATCH = 500
SIZES = (200, 1024)
NOISE_BYTES = 16 << 20
WORKS = ("count", "noop", "Parquet", "stream to noop", "stream to Parquet", "landing", "sink")
"""`landing` is ingest by ranges, all core columns, beside the other side's stream to Parquet."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table."""

    work: str
    size: int

    @property
    def name(self) -> str:
        return f"{self.work}, {self.size} B" if self.size < 1024 else f"{self.work}, 1 KiB"

    @property
    def topic(self) -> str:
        return f"bench-{self.size}"


CASES = [Case(work, size) for size in SIZES for work in WORKS if work != "sink" or size == SIZES[0]]


def fill(bootstrap: str, topic: str, rows: int, size: int) -> None:
    """Write the topic in batches, queue after queue; bodies that do not compress."""
    noise = random.Random(size).randbytes(NOISE_BYTES)
    with Client(ClientConfig(bootstrap=(bootstrap,), request_timeout_s=60.0)) as client:
        producer = client.producer()
        queues = producer.queues(topic)
        for begin in range(0, rows, BATCH):
            messages = [
                Message(topic, noise[at : at + size], keys=(f"k{n}",))
                for n in range(begin, min(rows, begin + BATCH))
                for at in (n * 7919 % (NOISE_BYTES - size),)
            ]
            producer.send_batch(messages, queue=queues[begin // BATCH % len(queues)])


def cpu_seconds(jvm: psutil.Process) -> float:
    """Return the CPU time of Spark's JVM and all below it, those that have ended included."""
    used = 0.0
    for each in [jvm, *jvm.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


class Bench:
    """One Spark and both sides."""

    def __init__(self, spark: SparkSession, sides: Sequence[Side], folder: Path) -> None:
        self._spark, self._sides, self._folder = spark, sides, folder
        gateway = spark.sparkContext._gateway
        assert gateway is not None, "Spark runs below this process"
        self._jvm = psutil.Process(gateway.proc.pid)
        self._runs = 0

    def measure(self, case: Case, rows: int, repeats: int) -> dict[str, Any]:
        """Measure both sides in turns."""
        found: dict[str, list[tuple[float, float]]] = {side.name: [] for side in self._sides}
        frame = self._made(case.size, rows) if case.work == "sink" else None
        for _ in range(repeats + 1):
            for side in self._sides:
                work = self._work(case, side, frame)
                began, used = time.perf_counter(), cpu_seconds(self._jvm)
                counted = work()
                took = time.perf_counter() - began
                found[side.name].append((cpu_seconds(self._jvm) - used, took))
                if counted is not None and counted != rows:
                    raise harness.BenchError(f"{side.name}: {case.name}: {counted} of {rows} rows")
        if frame is not None:
            frame.unpersist()
        line: dict[str, Any] = {"name": case.name, "rows": rows, "body_bytes": case.size}
        for name, times in found.items():
            # A worker that ended in a turn took with it what it had used: that turn says nothing.
            cpu, seconds = min(turn for turn in times[1:] if turn[0] > 0)
            line[name] = {
                "rows_per_cpu_second": round(rows / cpu),
                "rows_per_second": round(rows / seconds),
                "cpu_seconds": [round(one, 2) for one, _ in times[1:]],
            }
        ours, kafkas = (line[side.name]["rows_per_cpu_second"] for side in self._sides)
        return line | {"ratio": round(ours / kafkas, 2)}

    def _work(self, case: Case, side: Side, frame: DataFrame | None) -> Callable[[], int | None]:
        self._runs += 1
        path = str(self._folder / f"run-{self._runs}")
        if frame is not None:
            return lambda: side.write(frame, f"sink-{case.size}")
        if case.work == "count":
            return lambda: side.read(self._spark, case.topic, counts=True).count()
        if case.work.startswith("stream"):
            form = "noop" if case.work.endswith("noop") else "parquet"
            return lambda: streamed(side.stream(self._spark, case.topic), form, path)
        if case.work == "landing":
            return lambda: side.land(self._spark, case.topic, path)
        form = case.work.lower()

        def write() -> None:
            side.read(self._spark, case.topic).write.format(form).mode("overwrite").save(path)

        return write

    def _made(self, size: int, rows: int) -> DataFrame:
        """Return rows that are in memory, so that a sink is all there is to measure."""
        texts = f"cast(substr(repeat(sha2(cast(id as string), 512), {size // 128 + 1}), 1, {size})"
        made = self._spark.range(0, rows, 1, 2).selectExpr(
            "concat('k', id) as key", f"{texts} as binary) as value"
        )
        made.cache().count()
        return made


@contextlib.contextmanager
def sides(folder: Path, port_base: int) -> Iterator[tuple[SparkSession, tuple[Imago, Kafka]]]:
    """Run both brokers and a Spark that can read both."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {connector_path()} pyspark-shell"
    with (
        harness.broker(port_base) as server,
        kafka_original(folder, partitions=QUEUES) as kafka,
    ):
        for size in SIZES:
            for kind in ("bench", "sink"):
                server.create_topic(f"{kind}-{size}", QUEUES)
        spark = session("imago-bench", cores=2, memory="3g")
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark, (Imago(f"127.0.0.1:{port_base}"), Kafka(kafka))
        finally:
            spark.stop()


def _fill(spark: SparkSession, both: tuple[Imago, Kafka], case: Case, rows: int) -> None:
    """Write a topic, and what Spark reads of it to the other side."""
    ours, kafka = both
    fill(ours.address, case.topic, rows, case.size)
    kafka.fill(ours.read(spark, case.topic).select("key", "value"), case.topic)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sink-rows", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", default="", help="lines whose name holds this text")
    parser.add_argument("--port-base", type=int, default=29200)
    asked = parser.parse_args(arguments)
    cases = list(harness.named(CASES, asked.only))
    with (
        tempfile.TemporaryDirectory(prefix="imago-bench-") as name,
        sides(Path(name), asked.port_base) as (spark, both),
    ):
        bench = Bench(spark, both, Path(name))
        filled = set()
        for case in cases:
            if case.work != "sink" and case.topic not in filled:
                _fill(spark, both, case, asked.rows)
                filled.add(case.topic)
            rows = asked.sink_rows if case.work == "sink" else asked.rows
            ticks = harness.cpu_ticks()
            line = bench.measure(case, rows, asked.repeats)
            line["steal"] = round(harness.steal_share(ticks, harness.cpu_ticks()), 3)
            line["load_average"] = round(os.getloadavg()[0], 1)
            harness.merge_results("spark", [line], [each.name for each in CASES])
            rates = [line[side.name]["rows_per_cpu_second"] for side in both]
            sys.stdout.write(
                f"{case.name:24} {rates[0]:>10,} {rates[1]:>10,} rows/CPU s {line['ratio']:>6.2f}\n"
            )
            sys.stdout.flush()
    sys.stdout.write("written to bench/results/spark.json\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
