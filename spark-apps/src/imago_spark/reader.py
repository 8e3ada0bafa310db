"""The batch and the stream reader: PySpark's calls on one side, offsets and pulls on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from imago_spark import broker
from imago_spark.errors import DataLossError, OffsetError, OptionError
from imago_spark.offsets import (
    EARLIEST,
    QueueRange,
    admit,
    from_engine,
    from_option,
    incarnations_of,
    made_anew,
    ranges,
    to_engine,
)
from imago_spark.options import OnDataLoss

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from imago_client.message_queue import MessageQueue
    from imago_spark.offsets import Incarnations, Offsets
    from imago_spark.options import SourceOptions


def wanted_offsets(text: str, name: str) -> str | Mapping[MessageQueue, int]:
    """Return the value of an offsets option: `earliest`, `latest`, or offsets of queues."""
    word = text.lower()
    return word if word in ("earliest", "latest") else from_option(text, name)


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one Spark partition; runs in a Python worker."""
    wanted = partition.value
    if wanted is None:  # what Spark makes of a plan without partitions
        return
    # Only here: the driver plans without loading Arrow and NumPy.
    from imago_spark.decode import decode_batches

    for piece in broker.pieces(options, wanted):
        yield from decode_batches(piece.body, wanted.queue, options.columns, end_offset=wanted.end)
    broker.check_incarnation(options, wanted)


def _partitions(planned: Sequence[QueueRange]) -> list[InputPartition]:
    return [InputPartition(one) for one in planned]


def _refuse_backwards(start: Offsets, end: Offsets) -> None:
    for queue, offset in sorted(end.items()):
        if offset < start.get(queue, 0):
            raise OffsetError(
                f"option 'endingOffsets': {queue} at {offset}, but reading begins at"
                f" {start[queue]}: the messages before it were not asked for, or are gone"
            )


class BatchReader(DataSourceReader):
    """Reads from the starting to the ending offsets, a queue in parts of about `splitBytes`.

    The ending offsets are fixed when Spark plans the query: load again to see newer messages.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        brokers = broker.TopicBrokers(self._options)
        queues = brokers.all_queues()
        start = wanted_offsets(self._options.starting_offsets or "earliest", "startingOffsets")
        end = wanted_offsets(self._options.ending_offsets or "latest", "endingOffsets")
        if end == "earliest" or (not isinstance(end, str) and EARLIEST in end.values()):
            raise OptionError("option 'endingOffsets': earliest would read nothing")
        if start == "latest":
            raise OptionError("option 'startingOffsets': a batch from latest would read nothing")
        if not isinstance(end, str):
            end = dict.fromkeys(queues, -1) | dict(end)
        _, incarnations = brokers.ends(queues)
        # The start first: a newest offset that is asked for later is never before it.
        resolved_start, resolved_end = brokers.resolve(start, queues), brokers.resolve(end, queues)
        if self._options.on_data_loss is OnDataLoss.FAIL:
            _refuse_backwards(resolved_start, resolved_end)
        return _partitions(brokers.split(ranges(resolved_start, resolved_end, incarnations)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches between engine offsets. Lives in the driver for a whole query."""

    def __init__(self, options: SourceOptions) -> None:
        if options.ending_offsets is not None:
            raise OptionError(
                "option 'endingOffsets': a stream has no end; remove it, or read a batch"
            )
        self._options = options
        self._brokers = broker.TopicBrokers(options)
        self._target: tuple[Offsets, Incarnations] | None = None
        self._seen: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        wanted = wanted_offsets(self._options.starting_offsets or "latest", "startingOffsets")
        queues = self._brokers.all_queues()
        _, incarnations = self._brokers.ends(queues)
        return to_engine(self._brokers.resolve(wanted, queues), incarnations)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        rows_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        options = self._options
        broker.check_run(options, options.run)
        latest, incarnations = self._target if self._target is not None else self._latest()
        self._seen = latest
        known = incarnations_of(start)
        begun = self._without_gone(from_engine(start), known, incarnations)
        self._refuse_cut_history(begun, latest)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = admit(begun | self._first_of_new(begun, latest), latest, rows_max)
        return to_engine(end, known | incarnations)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return None if self._seen is None else to_engine(self._seen)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ended, incarnations = from_engine(end), incarnations_of(end)
        begun = self._without_gone(from_engine(start), incarnations_of(start), incarnations)
        wanted = ranges(begun | self._first_of_new(begun, ended), ended, incarnations)
        return _partitions(self._brokers.split(wanted))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition)

    def stop(self) -> None:
        broker.close_clients()

    def _latest(self) -> tuple[Offsets, Incarnations]:
        return self._brokers.ends(self._brokers.queues())

    def _without_gone(self, begun: Offsets, known: Incarnations, now: Incarnations) -> Offsets:
        """Drop the offsets of recreated topics, if the options allow it."""
        changed = made_anew(known, now)
        if changed and self._options.on_data_loss is OnDataLoss.FAIL:
            raise DataLossError(broker.made_anew_text(*changed[0]))
        gone = set(changed)
        return {
            queue: offset
            for queue, offset in begun.items()
            if (queue.topic, queue.shard) not in gone
        }

    def _first_of_new(self, begun: Offsets, known: Offsets) -> Offsets:
        """Begin queues that appeared after the query began at their first message."""
        return self._brokers.earliest(queue for queue in known if queue not in begun)

    def _refuse_cut_history(self, begun: Offsets, latest: Offsets) -> None:
        for queue, offset in sorted(begun.items()):
            end = latest.get(queue)
            if end is not None and end < offset:
                raise DataLossError(
                    f"{queue}: read up to offset {offset}, but the queue now ends at {end}: its"
                    " history was cut, or the topic was deleted and created again; start with a"
                    " new checkpointLocation"
                )
