"""`delivery=transaction` in a real Spark: each micro-batch whole and once, whoever is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from imago_client import Message, batches
from imago_spark.pipelines.late_workers import run_stream
from imago_spark.source import ImagoDataSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ROWS = 3000


def numbers(spark: SparkSession, cluster: str, topic: str) -> list[int]:
    """Return the numbers in a topic's messages, sorted."""
    options = {"bootstrap": cluster, "subscribe": topic, "columns": "value"}
    frame = spark.read.format("imago").options(**options).load()
    return sorted(int(bytes(row.value)) for row in frame.collect())


@pytest.fixture(scope="module")
def source_topic(cluster: str) -> str:
    """A topic with the numbers below ROWS, in two queues."""
    from imago_client.blocking import Client

    with Client(cluster) as client:
        client.admin.create_topic("transaction-in", queues=2)
        messages = [Message("transaction-in", b"%d" % number) for number in range(ROWS)]
        for batch in batches(messages, bytes_max=50_000):
            client.producer().send_batch(batch)
    return "transaction-in"


def failing(name: str, mark: str, where: str) -> type[ImagoDataSource]:  # noqa: C901 - workers get it whole
    """Return a source whose sink fails at a place, until there is a file at `mark`.

    `task`: each first attempt ends, after all that it has staged. `before`, `after`: the driver's
    commit does, before or after it has published.
    """

    def wrapped(writer: Any) -> Any:
        import os
        import signal
        from pathlib import Path

        from pyspark import TaskContext

        write, commit = writer.write, writer.commit

        def written(rows: Any) -> Any:
            done = write(rows)
            context = TaskContext.get()
            if where == "task" and context and not context.attemptNumber():
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        def committed(messages: Any, *batch: int) -> None:
            ends = "" if Path(mark).exists() else where
            if ends != "before":
                commit(messages, *batch)
            if ends in ("before", "after"):
                raise RuntimeError(f"planted: the driver ends {ends} its commit")

        writer.write, writer.commit = written, committed
        return writer

    class Failing(ImagoDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return wrapped(super().writer(schema, overwrite))

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            return wrapped(super().streamWriter(schema, overwrite))

    return Failing


def run(
    spark: SparkSession, cluster: str, sink: str, topic: str, folder: Path, **more: str
) -> None:
    """Write the source's topic, 1000 rows a micro-batch, to its end."""
    frame = (
        spark.readStream.format("imago")
        .options(bootstrap=cluster, subscribe="transaction-in", startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", "1000")
        .load()
        .select("value")
    )
    writer = (
        frame.writeStream.format(sink)
        .options(bootstrap=cluster, topic=topic, sendBytes="10000", delivery="transaction")
        .options(**more)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    run_stream(lambda: writer.start().awaitTermination())


@pytest.mark.usefixtures("source_topic")
def test_what_killed_tasks_have_staged_is_never_read(
    spark: SparkSession, cluster: str, client: Client, tmp_path: Path
) -> None:
    client.admin.create_topic("transaction-tasks", queues=3)
    spark.dataSource.register(failing("imago_tx_task", str(tmp_path / "mark"), "task"))
    run(spark, cluster, "imago_tx_task", "transaction-tasks", tmp_path)
    assert numbers(spark, cluster, "transaction-tasks") == list(range(ROWS))


@pytest.mark.usefixtures("source_topic")
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_driver_that_ends_at_its_commit_goes_on(
    spark: SparkSession,
    cluster: str,
    client: Client,
    tmp_path: Path,
    where: str,
) -> None:
    topic, mark = f"transaction-{where}", tmp_path / "mark"
    client.admin.create_topic(topic, queues=3)
    spark.dataSource.register(failing(f"imago_tx_{where}", str(mark), where))
    with pytest.raises(StreamingQueryException, match="planted"):
        run(spark, cluster, f"imago_tx_{where}", topic, tmp_path)
    found = numbers(spark, cluster, topic)
    assert len(found) == (0 if where == "before" else 1000), "all of a micro-batch, or nothing"
    mark.touch()
    run(spark, cluster, f"imago_tx_{where}", topic, tmp_path)
    assert numbers(spark, cluster, topic) == list(range(ROWS))


def test_a_table_is_written_whole_or_not_at_all(
    spark: SparkSession, cluster: str, client: Client
) -> None:
    client.admin.create_topic("transaction-batch", queues=2)
    frame = spark.range(500).selectExpr("cast(id as string) as value")
    sink = {"bootstrap": cluster, "topic": "transaction-batch", "delivery": "transaction"}

    def write(source: DataFrame, **more: str) -> None:
        source.write.format("imago").options(**sink, **more).mode("append").save()

    bad = frame.selectExpr("if(value = '499', null, value) as value")
    with pytest.raises(PySparkException, match="a row's value is null"):
        write(bad)
    assert numbers(spark, cluster, "transaction-batch") == []
    write(frame, sinkId="nightly", sinkBatch="1")
    write(frame, sinkId="nightly", sinkBatch="1")
    assert numbers(spark, cluster, "transaction-batch") == list(range(500))
    with pytest.raises(Py4JJavaError, match="a later micro-batch of this sink"):
        write(frame, sinkId="nightly", sinkBatch="0")
    assert numbers(spark, cluster, "transaction-batch") == list(range(500))


@pytest.mark.usefixtures("source_topic")
def test_a_sink_belongs_to_one_query(
    spark: SparkSession, cluster: str, client: Client, tmp_path: Path
) -> None:
    client.admin.create_topic("transaction-two", queues=1)
    (tmp_path / "one").mkdir()
    spark.dataSource.register(failing("imago_tx_own", str(tmp_path / "mark"), "after"))
    with pytest.raises(StreamingQueryException, match="planted"):
        run(spark, cluster, "imago_tx_own", "transaction-two", tmp_path / "one", sinkId="mine")
    with pytest.raises(StreamingQueryException, match="another query has published a micro-batch"):
        run(spark, cluster, "imago", "transaction-two", tmp_path / "two", sinkId="mine")


def test_rows_wait_for_their_time(spark: SparkSession, cluster: str, client: Client) -> None:
    for delivery in ("transaction", "atLeastOnce"):
        topic = f"transaction-late-{delivery}"
        client.admin.create_topic(topic, queues=1)
        frame = spark.range(3).selectExpr(
            "cast(id as string) as value",
            "if(id = 1, current_timestamp() + interval 1 hour, null) as deliverAt",
            "if(id = 2, 1, null) as delayLevel",
        )
        sink = {"bootstrap": cluster, "topic": topic}
        with pytest.raises(PySparkException, match="'delayLevel': a row that waits"):
            frame.write.format("imago").options(**sink).mode("append").save()
        frame.write.format("imago").options(**sink, delivery=delivery).mode("append").save()
        assert numbers(spark, cluster, topic)[0] == 0
        assert 1 not in numbers(spark, cluster, topic)


def test_what_is_too_large_is_said_with_its_cure(
    spark: SparkSession, cluster: str, client: Client
) -> None:
    client.admin.create_topic("transaction-large", queues=1)
    frame = spark.range(50_001).selectExpr("cast(id as string) as value")
    sink = {"bootstrap": cluster, "topic": "transaction-large", "delivery": "transaction"}
    with pytest.raises(PySparkException, match="maxOffsetsPerTrigger"):
        frame.write.format("imago").options(**sink).mode("append").save()
    assert numbers(spark, cluster, "transaction-large") == []
