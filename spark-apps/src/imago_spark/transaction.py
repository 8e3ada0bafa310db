"""`delivery=transaction`: tasks stage their rows, the driver publishes them as one micro-batch.

Readers see nothing of what is staged. A publication is decided once, on one shard, and names the
attempts that count: of a task that ran twice, of a driver that came back. What was decided counts
for all who ask later; they finish it on the other shards. What nobody names goes with it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

from imago_client.core.sending.staging import MicroBatch
from imago_client.errors import ProducerFencedError
from imago_spark.errors import SinkError
from imago_wire.remoting.staged import BYTES_MAX, ROWS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_client.blocking.rocketmq.producer import Producer
    from imago_client.core.sending.packed import Packed
    from imago_client.message_queue import MessageQueue

_QUERY_SIZE: Final = 12
"""Characters of the query's id in the name of an attempt."""


@dataclass
class Staged(WriterCommitMessage):
    """What one task has staged."""

    sink: str
    batch: int
    query: str
    """Whose micro-batch it is: a sink's id belongs to one query."""
    attempt: str
    topic: str = ""
    """One that it has rows for; empty: it has none."""
    parts: dict[str, int] = field(default_factory=dict)
    """By shard."""
    rows: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)


class Staging:
    """Stages the rows of one task."""

    def __init__(self, producer: Producer, sink: str, batch: int, query: str) -> None:
        name = "".join(each for each in query if each.isalnum())[:_QUERY_SIZE]
        self._producer, self._batch = producer, MicroBatch(sink, batch)
        self.staged = Staged(sink, batch, name, f"{name}-{uuid.uuid4().hex}")

    def add(self, queue: MessageQueue, packed: Packed) -> None:
        """Stage messages for a queue; where their micro-batch was published, do nothing."""
        staged, shard = self.staged, queue.shard
        part = staged.parts.get(shard, 0)
        staged.topic = queue.topic
        size = self._producer.stage(self._batch, staged.attempt, part, queue, packed)
        staged.parts[shard] = part + 1
        staged.rows[shard] = staged.rows.get(shard, 0) + packed.count
        staged.bytes[shard] = staged.bytes.get(shard, 0) + size
        _check_size(shard, staged.rows[shard], staged.bytes[shard])


def publish(producer: Producer, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Have readers see what the tasks of a micro-batch have staged."""
    staged = [one for one in messages if isinstance(one, Staged) and one.topic]
    if not staged:
        return
    rows, size = Counter[str](), Counter[str]()
    for one in staged:
        rows.update(one.rows)
        size.update(one.bytes)
    for shard in sorted(rows):
        _check_size(shard, rows[shard], size[shard])
    first = staged[0]
    batch = MicroBatch(first.sink, first.batch)
    try:
        counted = producer.publish_staged(
            batch, first.topic, {one.attempt: one.parts for one in staged}
        )
    except ProducerFencedError as error:
        raise SinkError(fenced_text(first.sink, error)) from error
    strange = [name for name in counted if name.rpartition("-")[0] != first.query]
    if strange:
        raise SinkError(
            f"sink {first.sink!r}: another query has published a micro-batch {first.batch} of it"
            f" (attempt {strange[0]}), so the rows of this one were not: give each query, and each"
            ' new checkpoint, an .option("sinkId", …) of its own'
        )


def forget(producer: Producer, sink: str, batch: int, topic: str) -> None:
    """Remove what the tasks have staged of a write that failed before it was published."""
    producer.forget_staged(MicroBatch(sink, batch), topic)


def fenced_text(sink: str, error: ProducerFencedError) -> str:
    """Return the message about a micro-batch that comes after a later one."""
    return (
        f"sink {sink!r}: {error.remark}; a later micro-batch of this sink was written already: an"
        " old task, or a sinkId that was used with another checkpoint"
    )


def _check_size(shard: str, rows: int, size: int) -> None:
    if rows > ROWS_MAX or size > BYTES_MAX:
        raise SinkError(
            f"option 'delivery': transaction takes {ROWS_MAX} rows and {BYTES_MAX >> 20} MiB of a"
            f" micro-batch for one shard, and {shard} would get {rows} rows of {size} bytes: set"
            ' the source\'s .option("maxOffsetsPerTrigger", …) lower, add shards, or take'
            ' .option("delivery", "idempotent")'
        )
