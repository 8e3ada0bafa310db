"""Topics as tables, in a real Spark."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import PySparkException

from imago_client import Message, batches
from imago_spark.pipelines.ingest import build, land
from imago_spark.pipelines.late_workers import run_stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

COUNT = 2000


def fill(client: Client, topic: str) -> list[bytes]:
    client.admin.create_topic(topic, queues=2)
    producer = client.producer()
    messages = [
        Message(topic, b"%06d" % number, tags=f"t{number % 3}", keys=(f"k{number}",))
        for number in range(COUNT)
    ]
    for batch in batches(messages, bytes_max=20_000):
        producer.send_batch(batch)
    return [message.body for message in messages]


def table(spark: SparkSession, cluster: str, topic: str, **more: str) -> DataFrame:
    options = {"bootstrap": cluster, "subscribe": topic, "columns": "core"} | more
    return spark.read.format("imago").options(**options).load()


def test_topic_is_a_table_without_any_registration(
    spark: SparkSession, cluster: str, client: Client
) -> None:
    bodies = fill(client, "as-table")
    frame = table(spark, cluster, "as-table")
    assert sorted(bytes(row.value) for row in frame.select("value").collect()) == sorted(bodies)
    counts = frame.groupBy("tags").count().orderBy("tags").collect()
    assert [(row.tags, row["count"]) for row in counts] == [("t0", 667), ("t1", 667), ("t2", 666)]
    assert frame.where("crc32(value) & 2147483647 != body_crc").count() == 0
    checked = table(spark, cluster, "as-table", columns="offset,crc_ok")
    assert checked.groupBy("crc_ok").count().collect() == [(True, COUNT)]


def test_properties_are_a_column_for_those_who_ask(
    spark: SparkSession, cluster: str, client: Client
) -> None:
    fill(client, "with-properties")
    frame = table(spark, cluster, "with-properties", columns="properties")
    assert frame.where("properties['KEYS'] = key and properties['TAGS'] = tags").count() == COUNT


def test_query_of_kafka_reads_our_topics(spark: SparkSession, cluster: str, client: Client) -> None:
    bodies = fill(client, "as-kafka")
    frame = table(
        spark, cluster, "as-kafka", schema="kafka", columns="default", includeHeaders="true"
    )
    assert [name for name, _ in frame.dtypes] == (
        ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    )
    found = frame.selectExpr("cast(key as string)", "cast(value as string)", "partition", "offset")
    rows = found.collect()
    assert sorted(row.value.encode() for row in rows) == sorted(bodies)
    assert all(row.key == f"k{int(row.value)}" for row in rows)
    assert len({(row.partition, row.offset) for row in rows}) == COUNT
    tags = frame.selectExpr("explode(headers) as header").where("header.key = 'TAGS'")
    assert {bytes(row.header.value) for row in tags.collect()} == {b"t0", b"t1", b"t2"}


def test_stream_lands_every_message_once_over_restarts(
    spark: SparkSession, cluster: str, client: Client, tmp_path: Path
) -> None:
    fill(client, "as-stream")

    def run() -> list[int]:
        """Run the stream to the present end; return the rows of its batches."""
        writer = (
            spark.readStream.format("imago")
            .options(bootstrap=cluster, subscribe="as-stream", startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "1500")
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )

        def attempt() -> list[int]:
            query = writer.start()
            query.awaitTermination()
            return [one.numInputRows for one in query.recentProgress if one.numInputRows]

        return run_stream(attempt)

    assert run() == [1500, 500]
    client.producer().send(Message("as-stream", b"later"))
    assert run() == [1]
    landed = spark.read.parquet(str(tmp_path / "out"))
    assert landed.count() == COUNT + 1
    assert landed.select("shard", "queue", "offset").distinct().count() == COUNT + 1


def test_stream_refuses_what_its_checkpoint_does_not_speak_of(
    spark: SparkSession, cluster: str, client: Client, tmp_path: Path
) -> None:
    def run(topic: str, **more: str) -> None:
        writer = (
            spark.readStream.format("imago")
            .options(bootstrap=cluster, subscribe=topic, startingOffsets="earliest", **more)
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        run_stream(lambda: writer.start().awaitTermination())

    for topic in ("mine", "another"):
        client.admin.create_topic(topic, queues=2)
        client.producer().send(Message(topic, topic.encode()))
    run("mine")
    with pytest.raises(PySparkException, match=r"mine/shard-0/0: .*subscribe=another"):
        run("another")
    client.admin.delete_topic("mine")
    client.admin.create_topic("mine", queues=2)
    with pytest.raises(PySparkException, match=r"mine/shard-0/0: .*deleted and created again"):
        run("mine")
    client.producer().send(Message("mine", b"new"))
    run("mine", onDataLoss="skip")
    landed = [bytes(row.value) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(landed) == [b"mine", b"new"]


def test_ingest_lands_parquet_by_date_and_counts_damage(
    spark: SparkSession, cluster: str, client: Client, tmp_path: Path
) -> None:
    fill(client, "to-land")
    frame = build(spark, {"bootstrap": cluster, "subscribe": "to-land"})
    assert land(frame, str(tmp_path / "out")) == {"rows": COUNT, "damaged": 0}
    assert [path.name.partition("=")[0] for path in (tmp_path / "out").glob("date=*")] == ["date"]


def test_wrong_option_is_told_in_our_words(spark: SparkSession, cluster: str) -> None:
    with pytest.raises(PySparkException, match="did you mean 'startingOffsets'"):
        table(spark, cluster, "as-table", startingOffset="earliest")


def test_schema_cannot_be_replaced(spark: SparkSession, cluster: str) -> None:
    reader = spark.read.format("imago").schema("offset bigint")
    frame_options = {"bootstrap": cluster, "subscribe": "as-table"}
    with pytest.raises(PySparkException, match="schema of this source is fixed"):
        reader.options(**frame_options).load().count()


def test_workers_of_a_session_of_ours_load_what_is_compiled(spark: SparkSession) -> None:
    def loaded(_: int) -> str | None:
        return sys.modules["pyspark"].__file__

    assert spark.sparkContext.parallelize([0], 1).map(loaded).collect() == [pyspark.__file__]


def test_a_stream_goes_on_whose_driver_died_as_it_wrote_its_first_plan(
    spark: SparkSession, cluster: str, client: Client, tmp_path: Path
) -> None:
    fill(client, "first-plan")
    plan = tmp_path / "checkpoint" / "offsets" / ".0.f10719d4-6cbd-4003-ba80-ea37f60812a2.tmp"
    plan.parent.mkdir(parents=True)
    plan.write_text("v1")
    options = {"bootstrap": cluster, "subscribe": "first-plan", "startingOffsets": "earliest"}
    rows = spark.readStream.format("imago").options(**options).load()
    writer = rows.writeStream.format("parquet").trigger(availableNow=True)
    places = {"checkpointLocation": str(tmp_path / "checkpoint"), "path": str(tmp_path / "rows")}
    writer.options(**places).start().awaitTermination()
    assert spark.read.parquet(str(tmp_path / "rows")).count() == COUNT
