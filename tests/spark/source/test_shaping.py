"""Rows with the names and types of Spark's own Kafka source."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from imago_client import MessageQueue
from imago_spark.columns.shaping import PARTITIONS_A_SHARD, SHARDS_MAX, partition_of, shaped
from imago_spark.errors import SourceError
from imago_spark.schema import ALL, RowShape, arrow_schema, parse_columns
from imago_testing.frames.records import sample_log

KAFKA = parse_columns("all", RowShape.KAFKA)
QUEUE = MessageQueue("orders", "shard-2", 3)


def test_columns_are_typed_as_spark_reads_kafka() -> None:
    header = StructType().add("key", StringType()).add("value", BinaryType())
    theirs = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
        .add("headers", ArrayType(header))
    )
    assert arrow_schema(KAFKA, RowShape.KAFKA).equals(to_arrow_schema(theirs, timezone="UTC"))


def test_rows_are_what_a_job_of_kafka_expects() -> None:
    data = sample_log(compressed=True)
    (batch,) = shaped(KAFKA, RowShape.KAFKA, QUEUE)(data, 1 << 62)
    (same,) = shaped(ALL, RowShape.IMAGO, QUEUE)(data, 1 << 62)
    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(KAFKA, RowShape.KAFKA))
    assert batch.to_pylist() == [
        {
            "key": None if row["key"] is None else row["key"].encode(),
            "value": row["value"],
            "topic": "orders",
            "partition": 2 * PARTITIONS_A_SHARD + 3,
            "offset": row["offset"],
            "timestamp": row["store_time"],
            "timestampType": 1,
            "headers": [{"key": name, "value": text.encode()} for name, text in row["properties"]],
        }
        for row in same.to_pylist()
    ]
    assert b"a b" in batch.column("key").to_pylist()
    assert {"key": "KEYS", "value": b"a b"} in batch.column("headers").to_pylist()[1]


@pytest.mark.parametrize("column", KAFKA)
def test_each_column_can_be_read_alone(column: str) -> None:
    data = sample_log(compressed=False)
    whole = pa.Table.from_batches(shaped(KAFKA, RowShape.KAFKA, QUEUE)(data, 1 << 62))
    alone = pa.Table.from_batches(shaped((column,), RowShape.KAFKA, QUEUE)(data, 1 << 62))
    assert alone.equals(whole.select([column]))


def test_partitions_of_shards_never_meet() -> None:
    last = MessageQueue("t", f"east-shard-{SHARDS_MAX - 1}", PARTITIONS_A_SHARD - 1)
    assert partition_of(MessageQueue("t", "shard-0", 7)) == 7
    assert partition_of(last) == pa.scalar((1 << 31) - 1, pa.int32()).as_py()


@pytest.mark.parametrize(
    "queue",
    [
        MessageQueue("t", "broker-a", 0),
        MessageQueue("t", f"shard-{SHARDS_MAX}", 0),
        MessageQueue("t", "shard-0", PARTITIONS_A_SHARD),
    ],
)
def test_queue_without_a_number_of_its_own_is_refused(queue: MessageQueue) -> None:
    with pytest.raises(SourceError, match=f"kafka has no partition for {queue}"):
        partition_of(queue)
