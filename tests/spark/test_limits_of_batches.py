"""How much a real Spark reads: micro-batches with bounds, and batches with filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_client import Message, batches
from imago_client.message_queue import MessageQueue
from imago_spark.pipelines.late_workers import run_stream
from imago_spark.progress import lag_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ROWS = 2000


@pytest.fixture(scope="module")
def topic(cluster: str) -> str:
    """A topic of two queues, 1000 messages of about 1200 bytes each."""
    from imago_client.blocking import Client

    with Client(cluster) as client:
        client.admin.create_topic("bounded", queues=2)
        messages = [Message("bounded", b"%d" % number + bytes(1000)) for number in range(ROWS)]
        for number in range(2):
            queue = MessageQueue("bounded", "shard-0", number)
            for batch in batches(messages[number::2], bytes_max=100_000):
                client.producer().send_batch(batch, queue=queue)
    return "bounded"


def rows_of_batches(
    spark: SparkSession, cluster: str, topic: str, folder: Path, **options: str
) -> list[int]:
    """Read a stream to the present end; return how many rows its micro-batches have."""
    writer = (
        spark.readStream.format("imago")
        .options(bootstrap=cluster, subscribe=topic, startingOffsets="earliest", **options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
    )

    def attempt() -> list[int]:
        query = writer.start()
        query.awaitTermination()
        return [one.numInputRows for one in query.recentProgress if one.numInputRows]

    return run_stream(attempt)


def test_micro_batches_have_bytes(
    spark: SparkSession, cluster: str, topic: str, tmp_path: Path
) -> None:
    more = {"maxBytesPerTrigger": "1000000", "minOffsetsPerTrigger": "1000000"}
    found = rows_of_batches(spark, cluster, topic, tmp_path, **more)
    assert sum(found) == ROWS, "a run that is to end waits for no minimum"
    assert all(600 <= rows <= 1000 for rows in found[:-1]), "a row has 1000 to 1300 bytes"
    assert len(found) >= 2


def test_a_minimum_is_waited_for(
    spark: SparkSession, cluster: str, client: Client, tmp_path: Path
) -> None:
    client.admin.create_topic("waited-for", queues=1)
    stream = (
        spark.readStream.format("imago")
        .options(bootstrap=cluster, subscribe="waited-for", startingOffsets="earliest")
        .options(minOffsetsPerTrigger="5", maxTriggerDelay="1h")
        .load()
    )

    def attempt() -> None:
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        try:
            send(client, 4)
            query.processAllAvailable()
            assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == []
            waiting = [lag_of(one) for one in query.recentProgress]
            assert {MessageQueue("waited-for", "shard-0", 0): 4} in waiting
            send(client, 1)
            query.processAllAvailable()
            assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [5]
        finally:
            query.stop()

    run_stream(attempt)


def send(client: Client, count: int) -> None:
    for number in range(count):
        client.producer().send(Message("waited-for", b"%d" % number))


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize(
    ("condition", "rows", "partitions"),
    [
        ("queue = 1", 1000, 1),
        ("queue = 1 and offset >= 990", 10, 1),
        ("offset < 5", 10, 2),
        ("queue in (0, 7) and offset = 3", 1, 1),
        ("queue = 9", 0, 1),
        ("store_time < timestamp'2001-01-01'", 0, 1),
        ("store_time > timestamp'2001-01-01'", ROWS, 2),
    ],
)
def test_filters_are_pushed_down(
    spark: SparkSession, cluster: str, topic: str, condition: str, rows: int, partitions: int
) -> None:
    def frame(**more: str) -> DataFrame:
        options = {"bootstrap": cluster, "subscribe": topic, "columns": "default"} | more
        return spark.read.format("imago").options(**options).load().where(condition)

    found = frame(pushFilters="true")
    assert found.rdd.getNumPartitions() == partitions, "no task for what nobody wants"
    assert found.count() == rows
    assert frame().count() == rows
