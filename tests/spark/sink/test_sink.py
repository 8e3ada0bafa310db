"""Tables and streams written to topics by a real Spark, also by tasks that are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from imago_client import Message, batches
from imago_spark.pipelines.late_workers import run_stream
from imago_spark.source import ImagoDataSource
from imago_testing.clusters.pipelines import allow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ROWS = 6000
KILLED = "Python worker exited unexpectedly"
"""What Spark says of a worker that ended in the middle of a task."""


def read(spark: SparkSession, cluster: str, topic: str, **more: str) -> DataFrame:
    options = {"bootstrap": cluster, "subscribe": topic, "columns": "core"} | more
    return spark.read.format("imago").options(**options).load()


def numbers(spark: SparkSession, cluster: str, topic: str) -> list[int]:
    """Return the numbers in a topic's messages, sorted."""
    frame = read(spark, cluster, topic)
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


@pytest.fixture(scope="module")
def source_topic(cluster: str) -> str:
    """A topic with the numbers below ROWS, in two queues."""
    from imago_client.blocking import Client

    with Client(cluster) as client:
        client.admin.create_topic("sink-in", queues=2)
        messages = [Message("sink-in", b"%d" % number) for number in range(ROWS)]
        for batch in batches(messages, bytes_max=100_000):
            client.producer().send_batch(batch)
    return "sink-in"


def killing(name: str, mark: str, *, attempts: int) -> type[ImagoDataSource]:
    """Return a source whose writing tasks kill their worker after the second batch of rows.

    Each of the first `attempts` tries of a task does; with a file at `mark` none. Workers get it
    by value: they do not have the tests' modules.
    """

    def killed(rows: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context else 0
        for index, batch in enumerate(rows):
            if index == 2 and attempt < attempts and not Path(mark).exists():
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def wrapped(writer: Any) -> Any:
        original = writer.write
        writer.write = lambda rows: original(killed(rows))
        return writer

    class Killing(ImagoDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return wrapped(super().writer(schema, overwrite))

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            return wrapped(super().streamWriter(schema, overwrite))

    return Killing


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Rows reach a writer 500 at a time."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "500")
    yield
    spark.conf.set(setting, str(before))


def test_table_becomes_messages_and_comes_back(
    spark: SparkSession, cluster: str, client: Client
) -> None:
    client.admin.create_topic("sink-table", queues=3)
    frame = spark.range(1000).selectExpr(
        "cast(id as string) as value",
        "concat('k', id % 7) as key",
        "if(id % 2 = 0, 'even', null) as tags",
        "map('n', cast(id as string)) as properties",
        "cast(id % 5 as int) as flag",
    )
    frame.write.format("imago").options(bootstrap=cluster, topic="sink-table").mode("append").save()
    back = read(spark, cluster, "sink-table", columns="properties")
    wrong = back.where(
        "key != concat('k', int(string(value)) % 7) or properties['n'] != string(value)"
        " or flag != int(string(value)) % 5 or (tags = 'even') != (int(string(value)) % 2 = 0)"
    )
    assert back.count() == 1000
    assert wrong.count() == 0
    queues = back.groupBy("key").agg({"queue": "approx_count_distinct"}).collect()
    assert {row[1] for row in queues} == {1}, "a key's rows share a queue"
    # Rows of the source are rows of the sink: another topic, the same queues.
    client.admin.create_topic("sink-copy", queues=3)
    back.drop("topic").write.format("imago").options(
        bootstrap=cluster, topic="sink-copy", queueBy="column"
    ).mode("append").save()
    kept = ["shard", "queue", "key", "tags", "value", "flag", "body_crc"]
    copy = read(spark, cluster, "sink-copy")
    assert copy.select(kept).exceptAll(back.select(kept)).count() == 0
    assert copy.count() == 1000


@pytest.mark.usefixtures("small_batches")
def test_killed_task_is_run_again_and_writes_nothing_twice(
    spark: SparkSession, cluster: str, client: Client, source_topic: str, tmp_path: Path
) -> None:
    client.admin.create_topic("sink-killed", queues=2)
    spark.dataSource.register(killing("imago_killed", str(tmp_path / "mark"), attempts=2))
    frame = read(spark, cluster, source_topic).select("value")
    options = {"bootstrap": cluster, "topic": "sink-killed", "sendBytes": "100000"}
    frame.write.format("imago_killed").options(**options).mode("append").save()
    assert numbers(spark, cluster, "sink-killed") == list(range(ROWS))


@pytest.mark.usefixtures("small_batches")
def test_at_least_once_is_what_it_says(
    spark: SparkSession, cluster: str, client: Client, source_topic: str, tmp_path: Path
) -> None:
    client.admin.create_topic("sink-twice", queues=2)
    spark.dataSource.register(killing("imago_twice", str(tmp_path / "mark"), attempts=1))
    options = {"bootstrap": cluster, "topic": "sink-twice", "sendBytes": "100000"}
    frame = read(spark, cluster, source_topic).select("value")
    writer = frame.write.format("imago_twice").options(**options, delivery="atLeastOnce")
    writer.mode("append").save()
    found = numbers(spark, cluster, "sink-twice")
    assert set(found) == set(range(ROWS))
    assert len(found) > ROWS, "the killed tasks had sent some: this is what the other test shows"


@pytest.mark.usefixtures("small_batches")
def test_replayed_micro_batch_writes_nothing_twice(
    spark: SparkSession, cluster: str, client: Client, source_topic: str, tmp_path: Path
) -> None:
    client.admin.create_topic("sink-stream", queues=2)
    mark = tmp_path / "mark"
    spark.dataSource.register(killing("imago_stream", str(mark), attempts=3))

    def run() -> None:
        frame = (
            spark.readStream.format("imago")
            .options(bootstrap=cluster, subscribe=source_topic, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "4000")
            .load()
            .select("value")
        )
        writer = (
            frame.writeStream.format("imago_stream")
            .options(bootstrap=cluster, topic="sink-stream", sendBytes="50000")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        run_stream(lambda: writer.start().awaitTermination())

    with pytest.raises(StreamingQueryException, match=KILLED):
        run()
    assert 0 < len(numbers(spark, cluster, "sink-stream")) < ROWS
    mark.touch()
    run()
    assert numbers(spark, cluster, "sink-stream") == list(range(ROWS))


def test_tasks_of_a_run_that_is_over_send_nothing(
    spark: SparkSession, cluster: str, client: Client
) -> None:
    client.admin.create_topic("sink-over", queues=1)
    frame = spark.range(10).selectExpr("cast(id as string) as value")

    def run(epoch: int) -> None:
        options = {"bootstrap": cluster, "topic": "sink-over", "pipeline": "p", "epoch": str(epoch)}
        frame.write.format("imago").options(**options).mode("append").save()

    allow(cluster, "p", 2)
    with pytest.raises(PySparkException, match="epoch 1 of pipeline 'p': 2 is in force"):
        run(1)
    assert numbers(spark, cluster, "sink-over") == []
    run(2)
    assert numbers(spark, cluster, "sink-over") == list(range(10))


def test_older_micro_batches_of_a_sink_are_shut_out(
    spark: SparkSession, cluster: str, client: Client, source_topic: str, tmp_path: Path
) -> None:
    client.admin.create_topic("sink-fenced", queues=1)

    def run(checkpoint: str) -> None:
        frame = (
            spark.readStream.format("imago")
            .options(bootstrap=cluster, subscribe=source_topic, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "3000")
            .load()
            .select("value")
        )
        writer = frame.writeStream.format("imago").options(
            bootstrap=cluster, topic="sink-fenced", sinkId="the one"
        )
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        run_stream(lambda: writer.trigger(availableNow=True).start().awaitTermination())

    run("first")
    with pytest.raises(StreamingQueryException, match="later micro-batch of this sink"):
        run("second")
    assert numbers(spark, cluster, "sink-fenced") == list(range(ROWS))


def test_what_cannot_be_written_is_told_before_anything_is(
    spark: SparkSession, cluster: str
) -> None:
    frame = spark.range(1).selectExpr("id")
    options = {"bootstrap": cluster, "topic": "sink-none"}
    for mode, wanted in (("append", "'id' has no place"), ("overwrite", "only appended to")):
        with pytest.raises(PySparkException, match=wanted):
            frame.write.format("imago").options(**options).mode(mode).save()
