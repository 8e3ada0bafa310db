"""The batch and the stream writer: each row a message, stored once however often a task runs.

Each partition of a sink is an idempotent producer: its id comes from the sink's id and the number
of the partition; its epoch is the number of the micro-batch. A repeated attempt, or a micro-batch
that Spark replays after a restart, sends the same messages under the same numbers, and brokers
store those that they lack. A later micro-batch fences what is left of earlier ones. Nothing is
retried here: the producer resends, in `imago_client/core/sending/idempotent.py`.

With `delivery=transaction` tasks stage their rows instead, see `transaction`.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from imago_client.config import ProducerConfig
from imago_client.errors import ClientError, ProducerFencedError
from imago_spark.broker import GROUP, check_run, client_of
from imago_spark.errors import SinkError, plainly
from imago_spark.outbox import MESSAGES_MAX, Outbox, producer_id
from imago_spark.pacing import PACED_ROWS, SendPace
from imago_spark.sink_options import Delivery
from imago_spark.transaction import Staged, Staging, fenced_text, forget, publish

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from imago_client.blocking.rocketmq.producer import Producer
    from imago_client.message_queue import MessageQueue
    from imago_spark.outbox import Request
    from imago_spark.sink_options import SinkOptions

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
Queues = tuple["MessageQueue", ...]


@dataclass
class Written(WriterCommitMessage):
    """What one task has sent."""

    rows: int
    bytes: int


def planned_queues(options: SinkOptions) -> Mapping[str, Queues]:
    """Return the queues of the sink's one topic, so that all attempts choose among the same."""
    return {} if options.topic is None else {options.topic: _queues(options, options.topic)}


def _queues(options: SinkOptions, topic: str) -> Queues:
    try:
        return client_of(options).producer().queues(topic)
    except ClientError as error:
        raise SinkError(str(error)) from error


class BatchWriter(DataSourceArrowWriter):
    """Writes a table. Spark plans the write with it, then sends it to the workers."""

    def __init__(self, options: SinkOptions, sink_id: str) -> None:
        self._options, self._sink_id = options, sink_id
        self._planned = planned_queues(options)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = self._options.sink_batch
        return _write(self._options, self._sink_id, batch, "batch", self._planned, iterator)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish a transaction; else a row is visible once its task has sent it."""
        _publish(self._options, messages)

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Forget a transaction whose tasks have failed.

        Where all have not, the commit has: it may have been decided. Otherwise sent rows stay; a
        repeated write adds missing ones only with a `sinkId`.
        """
        topics = (one.topic for one in messages if isinstance(one, Staged) and one.topic)
        topic = next(topics, self._options.topic)
        if self._options.delivery is Delivery.TRANSACTION and topic and None in messages:
            with _as_sink_error(self._sink_id):
                producer = _plain_producer(self._options)
                forget(producer, self._sink_id, self._options.sink_batch, topic)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._planned = planned_queues(options)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context else None
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        if query is None or batch is None:
            raise SinkError("a stream's task does not say of which query and micro-batch it is")
        sink_id = self._options.sink_id or query
        return _write(self._options, sink_id, int(batch), query, self._planned, iterator)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's name
        """Publish a transaction; else a row is visible once its task has sent it."""
        _publish(self._options, messages)

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the replay of the micro-batch adds the missing rows, or ends what is staged.

        It may have been decided: Spark aborts also what could not be committed.
        """


def _publish(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    if options.delivery is not Delivery.TRANSACTION:
        return
    sink = next((one.sink for one in messages if isinstance(one, Staged)), "")
    check_run(options, options.run)
    with _as_sink_error(sink):
        publish(_plain_producer(options), messages)


@contextlib.contextmanager
def _as_sink_error(sink_id: str) -> Iterator[None]:
    """Turn a client's error into one that Spark shows with our message first."""
    try:
        yield
    except ProducerFencedError as error:
        raise SinkError(fenced_text(sink_id, error)) from error
    except ClientError as error:
        raise SinkError(str(error)) from error


def _write(
    options: SinkOptions,
    sink_id: str,
    epoch: int,
    query: str,
    planned: Mapping[str, Queues],
    batches: Iterator[pa.RecordBatch],
) -> WriterCommitMessage:
    """Send, or stage, the rows of one task."""
    check_run(options, options.run)
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    known = dict(planned)
    pace = _pace(options, partition)

    def queues_of(topic: str) -> Queues:
        if topic not in known:
            known[topic] = _queues(options, topic)
        return known[topic]

    outbox = Outbox(
        queues_of,
        topic=options.topic,
        queue_by=options.queue_by,
        send_bytes=options.send_bytes,
        partition=partition,
        rows_max=MESSAGES_MAX if options.rows_per_second is None else PACED_ROWS,
        waits_alone=options.delivery is not Delivery.TRANSACTION,
    )
    with _as_sink_error(sink_id):
        if options.delivery is Delivery.TRANSACTION:
            staging = Staging(_plain_producer(options), sink_id, epoch, query)
            for queue, packed in _requests(outbox, batches):
                staging.add(queue, packed)
            return staging.staged
        producer = _producer(options, sink_id, partition, epoch)
        for queue, packed in _requests(outbox, batches):
            pace.take(packed.count)
            producer.send_packed(packed, queue=queue)
        pace.rest()
    return Written(outbox.rows, outbox.bytes)


def _requests(outbox: Outbox, batches: Iterator[pa.RecordBatch]) -> Iterator[Request]:
    for batch in batches:
        yield from outbox.add(batch)
    yield from outbox.rest()


def _pace(options: SinkOptions, partition: int) -> SendPace:
    if options.rows_per_second is not None and partition:
        raise SinkError(
            "option 'rowsPerSecond': is of the whole query, and a task knows of no other: write"
            " one partition, .coalesce(1)"
        )
    return SendPace(options.rows_per_second, time.monotonic, time.sleep)


def _plain_producer(options: SinkOptions) -> Producer:
    """Return a producer that numbers nothing."""
    return client_of(options).producer(
        ProducerConfig(
            group=GROUP,
            send_timeout_s=options.timeout_s,
            delivery_timeout_s=options.delivery_timeout_s,
        )
    )


def _producer(options: SinkOptions, sink_id: str, partition: int, epoch: int) -> Producer:
    idempotent = options.delivery is Delivery.IDEMPOTENT
    config = ProducerConfig(
        group=GROUP,
        send_timeout_s=options.timeout_s,
        delivery_timeout_s=options.delivery_timeout_s,
        idempotent=idempotent,
        producer_id=producer_id(sink_id, partition) if idempotent else None,
        producer_epoch=epoch if idempotent else 0,
    )
    return client_of(options).producer(config)
