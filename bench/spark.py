"""`make bench-spark`: rows a second of the Spark source, beside the client that it stands on.

    python -m bench.spark [--rows N] [--size BYTES] [--columns NAMES] [--repeats N] [--port-base N]

One topic of 1 KiB messages in eight queues, written once. Measured are the blocking client alone
(one process that fetches every queue in large pieces and decodes nothing), and Spark with two
cores: `count`, all columns to a sink that drops them, and to Parquet. CPU is that of the reading
side: client, or JVM with its Python workers. The broker runs on one core.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import psutil

from bench import harness
from imago_client import ClientConfig, Message
from imago_client.blocking import Client
from imago_client.message_queue import MessageQueue
from imago_spark.pipelines.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

TOPIC = "bench"
QUEUES = 8
BATCH = 500


def fill(bootstrap: str, rows: int, size: int) -> None:
    """Write the topic in batches, queue after queue."""
    body = bytes(ord("a") + i % 23 for i in range(size))
    with Client(ClientConfig(bootstrap=(bootstrap,), request_timeout_s=60.0)) as client:
        producer = client.producer()
        queues = producer.queues(TOPIC)
        messages = [Message(TOPIC, body, tags="t", keys=(f"k{n}",)) for n in range(BATCH)]
        for index in range(-(-rows // BATCH)):
            producer.send_batch(messages, queue=queues[index % len(queues)])


def fetched(bootstrap: str) -> tuple[int, int]:
    """Fetch everything with the blocking client; return rows and bytes of records."""
    rows = size = 0
    with Client(bootstrap) as client:
        consumer = client.pull_consumer("bench")
        for number in range(QUEUES):
            queue = MessageQueue(TOPIC, "shard-0", number)
            for piece in consumer.scan(queue, 0, consumer.max_offset(queue)):
                size += len(piece.body)
            rows += consumer.max_offset(queue)
    return rows, size


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all below it, those that have ended included."""
    own = psutil.Process()
    times = [own.cpu_times(), *[each.cpu_times() for each in own.children(recursive=True)]]
    return float(
        sum(one.user + one.system + one.children_user + one.children_system for one in times)
    )


def timed(work: Callable[[], object], repeats: int) -> dict[str, float]:
    """Return the median seconds of several runs, with the CPU seconds of one."""
    seconds, cpu = [], []
    for _ in range(repeats):
        began, used = time.perf_counter(), cpu_seconds()
        work()
        seconds.append(time.perf_counter() - began)
        cpu.append(cpu_seconds() - used)
    return {"seconds": statistics.median_low(seconds), "cpu_seconds": statistics.median_low(cpu)}


def row_of(name: str, times: dict[str, float], rows: int, size: int) -> dict[str, Any]:
    """Return one line of the result; MB are of records as stored."""
    return {
        "name": name,
        "rows": rows,
        "record_bytes": size,
        "rows_per_second": round(rows / times["seconds"]),
        "mb_per_second": round(size / times["seconds"] / 1e6, 1),
        "rows_per_cpu_second": round(rows / max(times["cpu_seconds"], 1e-9)),
        **{key: round(value, 3) for key, value in times.items()},
    }


def table(spark: SparkSession, bootstrap: str, columns: str) -> DataFrame:
    options = {"bootstrap": bootstrap, "subscribe": TOPIC}
    if columns:
        options["columns"] = columns
    return spark.read.format("imago").options(**options).load()


def measure(bootstrap: str, repeats: int, columns: str) -> list[dict[str, Any]]:
    """Measure the client, then Spark."""
    rows, size = fetched(bootstrap)
    found = [row_of("blocking client, raw", timed(lambda: fetched(bootstrap), repeats), rows, size)]
    spark = session("imago-bench", cores=2, memory="2g")
    files = tempfile.TemporaryDirectory(prefix="imago-bench-")

    def written(form: str) -> None:
        frame = table(spark, bootstrap, columns)
        frame.write.format(form).mode("overwrite").save(f"{files.name}/table")

    try:
        table(spark, bootstrap, columns).limit(10).collect()  # workers and classes are there
        works: dict[str, Callable[[], object]] = {
            "Spark count": lambda: table(spark, bootstrap, columns).count(),
            "Spark, all columns dropped": lambda: written("noop"),
            "Spark, Parquet": lambda: written("parquet"),
        }
        found += [row_of(name, timed(work, repeats), rows, size) for name, work in works.items()]
    finally:
        spark.stop()
        files.cleanup()
    raw = found[0]["rows_per_second"]
    return [one | {"of_raw": round(one["rows_per_second"] / raw, 3)} for one in found]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--columns", default="", help="of the source; its default without")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--port-base", type=int, default=29200)
    asked = parser.parse_args(arguments)
    with harness.broker(asked.port_base) as server:
        bootstrap = f"127.0.0.1:{asked.port_base}"
        server.create_topic(TOPIC, QUEUES)
        fill(bootstrap, asked.rows, asked.size)
        ticks = harness.cpu_ticks()
        rows = measure(bootstrap, asked.repeats, asked.columns)
        state = {
            "body_bytes": asked.size,
            "columns": asked.columns or "default",
            "steal": round(harness.steal_share(ticks, harness.cpu_ticks()), 3),
            "load_average": round(os.getloadavg()[0], 1),
        }
    path = harness.write_results("spark", [one | state for one in rows])
    for one in rows:
        sys.stdout.write(
            f"{one['name']:28} {one['rows_per_second']:>10,} rows/s {one['mb_per_second']:>8,} MB/s"
            f" {one['rows_per_cpu_second']:>10,} rows/CPU s {one['of_raw']:>6.0%} of raw\n"
        )
    sys.stdout.write(f"written to {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
