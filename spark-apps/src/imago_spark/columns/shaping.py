"""Rows with the columns of Spark's Kafka source, so that a query of it reads our topics.

Kafka has one number for what is a queue of a shard here. Shards are numbered, too: the number of a
partition is that of its queue in the shard with number 0, and `PARTITIONS_A_SHARD` more for each
further one. It stays what it is while shards and queues come.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from imago_spark.columns.decode import decode_batches
from imago_spark.errors import SourceError
from imago_spark.schema import RowShape, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from imago_client.message_queue import MessageQueue

    Decoder = Callable[[bytes, int], Iterator[pa.RecordBatch]]
    """Makes batches of an answer's rows below an offset."""

PARTITIONS_A_SHARD: Final = 1 << 16
SHARDS_MAX: Final = 1 << 15
"""Whose partitions have numbers of 32 bits."""
_LOG_APPEND_TIME: Final = 1
"""Kafka's number for a time that the broker has set."""
_READ_FROM: Final = {
    "partition": "queue",
    "timestamp": "store_time",
    "timestampType": "queue",  # any column: it is the same in each row
    "headers": "properties",
}
"""Which of our columns one is made of, where it has another name."""


def shaped(columns: Sequence[str], shape: RowShape, queue: MessageQueue) -> Decoder:
    """Return what decodes a queue's answers. SourceError: the shape has no place for the queue."""
    if shape is RowShape.IMAGO:
        return lambda answer, end: decode_batches(answer, queue, columns, end_offset=end)
    return partial(_kafka_batches, columns, queue, partition_of(queue))


def partition_of(queue: MessageQueue) -> int:
    """Return the number of a queue among all of its topic."""
    found = re.search(r"(\d+)$", queue.shard)
    shard = int(found[1]) if found else SHARDS_MAX
    if shard >= SHARDS_MAX or queue.queue_id >= PARTITIONS_A_SHARD:
        raise SourceError(
            f"option 'schema': kafka has no partition for {queue}: its shard's name must end in a"
            f" number below {SHARDS_MAX}, and its own be below {PARTITIONS_A_SHARD}; read it"
            " without this option"
        )
    return shard * PARTITIONS_A_SHARD + queue.queue_id


def _kafka_batches(
    columns: Sequence[str], queue: MessageQueue, partition: int, answer: bytes, end: int
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(columns, RowShape.KAFKA)
    ours = tuple(dict.fromkeys(_READ_FROM.get(name, name) for name in columns))
    for batch in decode_batches(answer, queue, ours, end_offset=end):
        arrays = [_kafka_column(name, batch, partition) for name in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _kafka_column(name: str, batch: pa.RecordBatch, partition: int) -> pa.Array:
    if name == "partition":
        return pa.repeat(pa.scalar(partition, pa.int32()), len(batch))
    if name == "timestampType":
        return pa.repeat(pa.scalar(_LOG_APPEND_TIME, pa.int32()), len(batch))
    found = batch.column(_READ_FROM.get(name, name))
    if name == "key":
        return found.cast(pa.binary())
    if name == "headers":
        values = found.items.cast(pa.binary())
        pairs = pa.StructArray.from_arrays([found.keys, values], ["key", "value"])
        return pa.ListArray.from_arrays(
            found.offsets, pairs, type=arrow_schema([name], RowShape.KAFKA).field(0).type
        )
    return found
