"""The batch and the stream reader: PySpark's calls on one side, offsets and pulls on the other."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from imago_spark import broker
from imago_spark.choosing.admission import BatchMinimum, admit_bytes
from imago_spark.choosing.headroom import Headroom
from imago_spark.choosing.pushed import Pushed
from imago_spark.choosing.times import Times
from imago_spark.errors import OffsetError, OptionError, SourceError, plainly
from imago_spark.offsets import EARLIEST, LATEST, QueueRange, admit, ranges
from imago_spark.options import OnDataLoss, TimeNotFound
from imago_spark.progress import (
    Progress,
    check_subscription,
    continued,
    from_option,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from imago_spark.offsets import Offsets
    from imago_spark.options import SourceOptions


log = logging.getLogger(__name__)

_ALL_ROWS: Final = (1 << 63) - 1


def wanted_offsets(text: str, name: str) -> str | Progress:
    """Return the value of an offsets option: `earliest`, `latest`, or offsets of queues."""
    word = text.lower()
    return word if word in ("earliest", "latest") else from_option(text, name)


def _still(
    brokers: broker.TopicBrokers, wanted: str | Progress, read: Progress, *, skips: bool
) -> tuple[str | Offsets, Offsets]:
    """Return what an option says of the queues that are read, and of others that still exist.

    Where it says of which topics its offsets are, they are still those.
    """
    if isinstance(wanted, str):
        return wanted, {}
    if wanted.cluster is None and not wanted.incarnations:
        return wanted.offsets, {}  # somebody's numbers
    kept = continued(wanted, brokers.present(wanted, read), skips=skips).offsets
    beside = {queue: offset for queue, offset in kept.items() if queue not in read.offsets}
    return {queue: offset for queue, offset in kept.items() if queue not in beside}, beside


def _beginning(
    brokers: broker.TopicBrokers, options: SourceOptions, default: str, read: Progress
) -> tuple[str | Offsets, Offsets]:
    """Return where the options let a query begin: of the queues that are read, and of others."""
    if options.starting_times is not None:
        strict = options.time_not_found is TimeNotFound.ERROR
        return brokers.at_times(options.starting_times, read.offsets, strict=strict), {}
    text = options.starting_offsets or default
    if text.lower() == "group" and options.group is not None:
        return brokers.committed(options.group, read.offsets), {}
    skips = options.on_data_loss is OnDataLoss.SKIP
    return _still(brokers, wanted_offsets(text, "startingOffsets"), read, skips=skips)


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one Spark partition; runs in a Python worker."""
    planned: tuple[QueueRange, ...] | None = partition.value
    if planned is None:  # what Spark makes of a plan without partitions
        return
    # Only here: the driver plans without loading Arrow and NumPy.
    from imago_spark.columns.memory import settle
    from imago_spark.columns.shaping import shaped

    settle()
    # Before, so that no row of another topic gets to a sink; after, since it may have come between.
    broker.check_incarnation(options, *planned)
    for wanted in planned:
        decode = shaped(options.columns, options.shape, wanted.queue)
        for piece in broker.pieces(options, wanted):
            yield from decode(piece.body, wanted.end)
    broker.check_incarnation(options, *planned)


def _partitions(planned: Sequence[tuple[QueueRange, ...]]) -> list[InputPartition]:
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

    @plainly
    def partitions(self) -> list[InputPartition]:
        options = self._options
        brokers = broker.TopicBrokers(options)
        queues = brokers.all_queues()
        if (options.starting_offsets or "").lower() == "latest":
            raise OptionError("option 'startingOffsets': a batch from latest would read nothing")
        end = wanted_offsets(options.ending_offsets or "latest", "endingOffsets")
        if end == "earliest" or (isinstance(end, Progress) and EARLIEST in end.offsets.values()):
            raise OptionError("option 'endingOffsets': earliest would read nothing")
        skips = options.on_data_loss is OnDataLoss.SKIP
        read = brokers.ends(queues)
        begun, _ = _beginning(brokers, options, "earliest", read)
        ended, _ = _still(brokers, end, read, skips=skips)
        if options.ending_times is not None:
            ended = brokers.at_times(options.ending_times, queues, strict=False)
        if not isinstance(ended, str):
            ended = dict.fromkeys(queues, LATEST) | ended
        # The start first: a newest offset that is asked for later is never before it.
        resolved_start = brokers.resolve(begun, queues)
        resolved_end = brokers.resolve(ended, queues)
        if not skips:
            _refuse_backwards(resolved_start, resolved_end)
        bounds = self._narrowed(brokers, resolved_start, resolved_end)
        return _partitions(brokers.tasks(ranges(*bounds, read.incarnations)))

    def _narrowed(
        self, brokers: broker.TopicBrokers, start: Offsets, end: Offsets
    ) -> tuple[Offsets, Offsets]:
        """Return the bounds without what nobody wants to see."""
        del brokers
        return start, end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition)


class FilteringReader(BatchReader):
    """The same, which reads only what filters on queue, offset and store time may leave.

    A class of its own: PySpark refuses one that has `pushFilters` in a session without
    `spark.sql.python.filterPushdown.enabled` (plan_data_source_read.py).
    """

    _pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        self._pushed = Pushed.of(filters)
        return filters  # Spark applies them again, to what is left

    def _narrowed(
        self, brokers: broker.TopicBrokers, start: Offsets, end: Offsets
    ) -> tuple[Offsets, Offsets]:
        pushed = self._pushed
        begun, ended = pushed.narrowed(start, end)
        if pushed.from_ms is not None:
            found = brokers.at_times(Times(pushed.from_ms), ended, strict=False)
            begun = {queue: max(at, found[queue]) for queue, at in begun.items()}
        if pushed.until_ms is not None:
            found = brokers.at_times(Times(pushed.until_ms), ended, strict=False)
            ended = {queue: min(at, found[queue]) for queue, at in ended.items()}
        return begun, ended


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches between engine offsets. Lives in the driver for a whole query."""

    def __init__(self, options: SourceOptions) -> None:
        if options.ending_offsets is not None or options.ending_times is not None:
            raise OptionError(
                "option 'endingOffsets': a stream has no end; remove it, or read a batch"
            )
        self._options = options
        self._brokers = broker.TopicBrokers(options)
        self._skips = options.on_data_loss is OnDataLoss.SKIP
        self._target: Progress | None = None
        self._seen: Progress | None = None
        self._committed: Offsets = {}
        self._minimum = BatchMinimum(
            options.min_offsets_per_trigger, options.max_trigger_delay_s, time.monotonic
        )
        self._headroom = Headroom(self._brokers.earliest, time.monotonic)

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        queues = self._brokers.all_queues()
        read = self._brokers.ends(queues)
        begun, beside = _beginning(self._brokers, self._options, "latest", read)
        return replace(read, offsets=self._brokers.resolve(begun, queues) | beside).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return a limit where there is one of ours: else Spark's own, of Trigger.Once, counts."""
        options = self._options
        rows_max = options.max_offsets_per_trigger
        if rows_max is None and (options.max_bytes_per_trigger or options.min_offsets_per_trigger):
            rows_max = _ALL_ROWS
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    @plainly
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        broker.check_run(self._options, self._options.run)
        latest = self._target if self._target is not None else self._latest()
        self._seen = latest
        before = Progress.from_json(start)
        self._commit_back(before.offsets, latest.offsets)
        present = self._brokers.present(before, latest)
        begun = continued(before, present, skips=self._skips)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        first = begun.offsets | self._first_of_new(begun.offsets, latest.offsets)
        self._warn(first, latest.offsets)
        ends = admit(first, latest.offsets, rows_max)
        if rows_max is not None:
            if self._target is None and self._minimum.waits(first, latest.offsets):
                return start  # no micro-batch yet
            ends = self._within_bytes(first, ends)
        places = {(queue.topic, queue.shard) for queue in first}
        known = begun.incarnations | present.hidden.incarnations | latest.incarnations
        return Progress(
            offsets=ends,
            incarnations={key: known[key] for key in known if key in places},
            cluster=latest.cluster or before.cluster,
            subscription=latest.subscription,
        ).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return None if self._seen is None else self._seen.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._brokers.ends(self._brokers.all_queues())

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan a batch whose end was decided before; maybe long ago, by a run that has died."""
        before, ended = Progress.from_json(start), Progress.from_json(end)
        begun = {
            queue: offset
            for queue, offset in before.offsets.items()
            if (known := before.incarnation(queue)) is None
            or (now := ended.incarnation(queue)) is None
            or known.is_same(now)
        }
        if not self._skips:
            check_subscription(ended, self._options.subscription)
        else:
            ended = self._without_gone(ended)
        wanted = ranges(
            begun | self._first_of_new(begun, ended.offsets), ended.offsets, ended.incarnations
        )
        return _partitions(self._brokers.tasks(wanted))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition)

    def stop(self) -> None:
        broker.close_clients()

    def _latest(self) -> Progress:
        return self._brokers.ends(self._brokers.queues())

    def _commit_back(self, done: Offsets, known: Offsets) -> None:
        """Tell brokers, for those who look at the group's lag, what the query has done with.

        Spark asks for the next micro-batch once it is done with the one before.
        """
        group = self._options.group
        if group is None:
            return
        news = {
            queue: at
            for queue, at in done.items()
            if queue in known and self._committed.get(queue) != at
        }
        try:
            self._brokers.commit(group, news)
        except SourceError as error:
            log.warning("offsets of group %s are committed later: %s", group, error)
            return
        self._committed |= news

    def _warn(self, read: Offsets, ends: Offsets) -> None:
        with contextlib.suppress(SourceError):  # a shard that has no master waits
            for text in self._headroom.warnings(read, ends):
                log.warning(text)

    def _within_bytes(self, start: Offsets, ends: Offsets) -> Offsets:
        bytes_max = self._options.max_bytes_per_trigger
        if bytes_max is None:
            return ends
        sizes = self._brokers.row_bytes(ranges(start, ends))
        return admit_bytes(start, ends, sizes, bytes_max)

    def _without_gone(self, planned: Progress) -> Progress:
        """Leave out what the plan has of topics that are gone, or not wanted any more, since."""
        present = self._brokers.present(planned, self._latest())
        still = continued(planned, present, skips=True)
        return still.without([one for one in still.offsets if one in present.hidden.offsets])

    def _first_of_new(self, begun: Offsets, known: Offsets) -> Offsets:
        """Begin queues that appeared after the query began at their first message."""
        return self._brokers.earliest(queue for queue in known if queue not in begun)


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises at its first call what kept the stream's reader from being made.

    PySpark's worker stops the reader whatever happens: where it has none, its own failure to do so
    would be the last line that a user sees, and cover why.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise self._error

    initialOffset = getDefaultReadLimit = latestOffset = reportLatestOffset = _refuse  # noqa: N815
    prepareForTriggerAvailableNow = partitions = read = _refuse  # noqa: N815

    def stop(self) -> None:
        broker.close_clients()
