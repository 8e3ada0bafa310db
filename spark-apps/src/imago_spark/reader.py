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
from imago_spark.errors import DataLossError, OptionError
from imago_spark.offsets import (
    QueueRange,
    admit,
    from_engine,
    from_option,
    ranges,
    to_engine,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from imago_client.messages import MessageQueue
    from imago_spark.offsets import Offsets
    from imago_spark.options import SourceOptions


def wanted_offsets(text: str, name: str) -> str | Mapping[MessageQueue, int]:
    """Return what an offsets option says: `earliest`, `latest`, or offsets of queues."""
    return text if text in ("earliest", "latest") else from_option(text, name)


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one Spark partition; runs in a Python worker."""
    wanted = partition.value
    if wanted is None:  # what Spark makes of a plan without partitions
        return
    # Only here: the driver plans without loading Arrow and NumPy.
    from imago_spark.decode import decode_batch

    for piece in broker.pieces(options, wanted):
        batch = decode_batch(piece.body, wanted.queue, options.columns, end_offset=wanted.end)
        if batch is not None:
            yield batch


def _partitions(planned: Sequence[QueueRange]) -> list[InputPartition]:
    return [InputPartition(one) for one in planned]


class BatchReader(DataSourceReader):
    """Reads from the starting to the ending offsets, one Spark partition a queue.

    The ending offsets are fixed when Spark plans the query: load again to see what came since.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        brokers = broker.TopicBrokers(self._options)
        queues = brokers.queues()
        start = wanted_offsets(self._options.starting_offsets or "earliest", "startingOffsets")
        end = wanted_offsets(self._options.ending_offsets, "endingOffsets")
        if end == "earliest":
            raise OptionError("option 'endingOffsets': earliest would read nothing")
        if not isinstance(end, str):
            end = dict.fromkeys(queues, -1) | dict(end)
        resolved_end = brokers.resolve(end, queues)
        return _partitions(ranges(brokers.resolve(start, queues), resolved_end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches between engine offsets. Lives in the driver for a whole query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._brokers = broker.TopicBrokers(options)
        self._target: Offsets | None = None
        self._seen: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        wanted = wanted_offsets(self._options.starting_offsets or "latest", "startingOffsets")
        return to_engine(self._brokers.resolve(wanted, self._brokers.queues()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        rows_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        begun = from_engine(start)
        latest = self._target if self._target is not None else self._latest()
        self._seen = latest
        self._refuse_cut_history(begun, latest)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_engine(admit(begun | self._first_of_new(begun, latest), latest, rows_max))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return None if self._seen is None else to_engine(self._seen)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ended = from_engine(start), from_engine(end)
        return _partitions(ranges(begun | self._first_of_new(begun, ended), ended))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition)

    def stop(self) -> None:
        broker.close_clients()

    def _latest(self) -> Offsets:
        return self._brokers.latest(self._brokers.queues())

    def _first_of_new(self, begun: Offsets, known: Offsets) -> Offsets:
        """A queue that appeared after the query began is read from its beginning."""
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
