"""Requests of the source to brokers, over one client per process."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from imago_client.blocking import Client
from imago_client.blocking.rocketmq.scan import ScanLimits
from imago_client.config import ClientConfig
from imago_client.errors import (
    ClientError,
    NoMasterError,
    NoQueuesError,
    NoRouteError,
    ProducerFencedError,
)
from imago_client.messages import PullStatus
from imago_spark.choosing.together import end_of, together
from imago_spark.errors import DataLossError, FencedError, SourceError
from imago_spark.incarnations import Incarnation
from imago_spark.offsets import EARLIEST, LATEST, packed, split
from imago_spark.options import ConnectionOptions
from imago_spark.progress import Existing, Progress, gone_text, made_anew_text
from imago_wire.system_topics import is_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from imago_client.blocking.rocketmq.pull_consumer import PullConsumer
    from imago_client.message_queue import MessageQueue
    from imago_client.received import Pulled
    from imago_spark.choosing.times import Times
    from imago_spark.incarnations import Incarnations
    from imago_spark.offsets import Offsets, QueueRange
    from imago_spark.options import FencedRun, SourceOptions

GROUP: Final = "IMAGO_SPARK"
"""The name under which queries pull. They commit nothing for it."""

_SAMPLES: Final = 3
_SAMPLE_ROWS: Final = 8
_SAMPLED_FROM: Final = 10_000
"""Longer ranges are sampled; of shorter ones it is good enough what the topic's rows are like."""
_SAMPLED_QUEUES: Final = 32
"""Of a topic's long ranges on a shard, the longest so many: each costs a few requests."""

_clients: dict[ConnectionOptions, Client] = {}
"""Spark reuses worker processes over batches, and their connections with them."""


def client_of(options: ConnectionOptions) -> Client:
    """Return this process's client for a cluster."""
    key = ConnectionOptions(
        **{one.name: getattr(options, one.name) for one in fields(ConnectionOptions)}
    )
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = Client(client_config(key))
    return client


def client_config(options: ConnectionOptions) -> ClientConfig:
    """Return how a client of these options connects."""
    return ClientConfig(
        bootstrap=options.bootstrap,
        request_timeout_s=options.timeout_s,
        connect_timeout_s=options.timeout_s,
        tls_ca_file=options.tls_ca_file,
        tls_certificate_file=options.tls_certificate_file,
        tls_key_file=options.tls_key_file,
        user=options.user,
        password_file=options.password_file,
    )


def consumer_of(options: SourceOptions) -> PullConsumer:
    """Return this process's consumer for a cluster."""
    return client_of(options).pull_consumer(GROUP)


def check_run(options: ConnectionOptions, run: FencedRun | None) -> None:
    """Return if the run may continue. FencedError: another run of its pipeline took over."""
    if run is None:
        return
    try:
        client_of(options).pipeline_run(run.pipeline, run.epoch).check()
    except ProducerFencedError as error:
        raise FencedError(error.remark) from error
    except ClientError as error:
        raise SourceError(str(error)) from error


def close_clients() -> None:
    """Close the clients that this process has opened."""
    for client in _clients.values():
        client.close()
    _clients.clear()


class TopicBrokers:
    """The queues of a query's topics, and their bounds."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._row_bytes: dict[tuple[str, str], float] = {}
        """Of a topic's rows on a shard, as they were when some were looked at last."""
        self._limits = scan_limits(options)

    def queues(self) -> list[MessageQueue]:
        """Return all readable queues, sorted. SourceError: one is missing."""
        with _as_source_error():
            consumer = consumer_of(self._options)
            found = sorted(queue for topic in self._topics() for queue in consumer.queues(topic))
        if not self._options.assigned:
            return found
        if missing := sorted(set(self._options.assigned) - set(found)):
            raise SourceError(f"option 'assign': {missing[0]} is not a queue that can be read")
        return list(self._options.assigned)

    def all_queues(self) -> list[MessageQueue]:
        """Return all queues, all of them reachable. SourceError: a shard has no live broker."""
        from imago_spark.options import OnDataLoss

        options = self._options
        if options.on_data_loss is OnDataLoss.FAIL and not options.assigned:
            with _as_source_error():
                consumer = consumer_of(options)
                lost = [queue for topic in self._topics() for queue in consumer.lost_queues(topic)]
            if lost:
                raise SourceError(
                    f"{lost[0]} cannot be read: {lost[0].shard} has no live broker; wait until it"
                    ' has, or set .option("onDataLoss", "skip") to read the other shards alone'
                )
        return self.queues()

    def _topics(self) -> Iterable[str]:
        options = self._options
        if options.pattern is None:
            return options.topics or sorted({queue.topic for queue in options.assigned})
        whole = re.compile(options.pattern).fullmatch
        admin = client_of(options).admin
        names = [name for name in admin.topics() if whole(name)]
        if options.include_system or not names:
            return names
        clusters = {shard.cluster for shard in admin.shards()}
        return [name for name in names if not (name.startswith("%") or is_system(name, clusters))]

    def earliest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the first offset of each queue that still exists."""
        with _as_source_error():
            consumer = consumer_of(self._options)
            found: Offsets = {}
            for own, told in together(consumer, queues, contextlib.nullcontext):
                found |= (
                    {queue: told.queues[queue.queue_id][0] for queue in own}
                    if told is not None
                    else {queue: consumer.min_offset(queue) for queue in own}
                )
            return found

    def latest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the end of each queue: what every in-sync member holds."""
        return self.ends(queues).offsets

    def ends(self, queues: Iterable[MessageQueue]) -> Progress:
        """Return the end of each queue, and which topics they are of."""
        return self._progress(queues, contextlib.nullcontext)

    def identities(self, queues: Iterable[MessageQueue]) -> Progress:
        """Return the same, with the end of only one queue of each topic and shard."""
        return self.ends({(queue.topic, queue.shard): queue for queue in queues}.values())

    def present(self, before: Progress, read: Progress) -> Existing:
        """Return what became of the queues that somebody remembers: `read` are those read now."""
        missing = [queue for queue in before.offsets if queue not in read.offsets]
        if not missing:
            return Existing(read=read)
        waiting = self._lost(sorted({queue.topic for queue in missing}))
        rest = [queue for queue in missing if queue not in waiting]
        hidden = self._progress(rest, _not_there)
        return Existing(read=read, waiting=waiting, hidden=hidden)

    def _progress(
        self,
        queues: Iterable[MessageQueue],
        passing_over: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> Progress:
        offsets: Offsets = {}
        incarnations: Incarnations = {}
        cluster = None
        with _as_source_error():
            consumer = consumer_of(self._options)
            for own, told in together(consumer, queues, passing_over):
                for queue in own:
                    with passing_over():
                        end = consumer.end(queue) if told is None else end_of(told, queue)
                        offsets[queue] = end.offset
                        cluster = end.cluster_id or cluster
                        if end.incarnation is not None:
                            made = Incarnation(end.topic_id, end.incarnation)
                            incarnations[queue.topic, queue.shard] = made
        return Progress(
            offsets=offsets,
            incarnations=incarnations,
            cluster=cluster,
            subscription=self._options.subscription,
        )

    def _lost(self, topics: Iterable[str]) -> frozenset[MessageQueue]:
        """Return the queues of topics, where there are such, whose shard has no live broker."""
        found: set[MessageQueue] = set()
        with _as_source_error():
            consumer = consumer_of(self._options)
            for topic in topics:
                with _not_there():
                    found.update(consumer.lost_queues(topic))
        return frozenset(found)

    def row_bytes(self, wanted: Sequence[QueueRange]) -> Mapping[MessageQueue, float]:
        """Return about how large the records of these ranges are, on the average of each queue."""
        found: dict[MessageQueue, float] = {}
        sampled: Counter[tuple[str, str]] = Counter()
        for one in sorted(wanted, key=lambda one: one.start - one.end):
            place = one.queue.topic, one.queue.shard
            is_long = one.end - one.start > _SAMPLED_FROM and sampled[place] < _SAMPLED_QUEUES
            if is_long or place not in self._row_bytes:
                sampled[place] += 1
                self._row_bytes[place] = self._mean_row_bytes(one)
            found[one.queue] = self._row_bytes[place]
        return found

    def tasks(self, wanted: Sequence[QueueRange]) -> list[tuple[QueueRange, ...]]:
        """Cut ranges into parts of about `splitBytes`, and gather what is much smaller."""
        sizes, options = self.row_bytes(wanted), self._options
        split_bytes, fewest = options.split_bytes, options.partitions_min
        parts = split(wanted, sizes, split_bytes=split_bytes, partitions_min=fewest)
        return packed(parts, sizes, split_bytes=split_bytes, partitions_min=fewest)

    def _mean_row_bytes(self, wanted: QueueRange) -> float:
        """Return the approximate size of a range's records, from a few of them."""
        rows = size = 0
        with _as_source_error():
            consumer = consumer_of(self._options)
            for part in range(_SAMPLES):
                at = wanted.start + (wanted.end - wanted.start) * part // _SAMPLES
                end = min(at + _SAMPLE_ROWS, wanted.end)
                found = next(iter(consumer.scan(wanted.queue, at, end, self._limits)), None)
                if found is not None and found.status is PullStatus.FOUND:
                    rows += found.next_offset - at
                    size += len(found.body)
        return size / rows if rows else 0.0

    def resolve(
        self, wanted: str | Mapping[MessageQueue, int], queues: Iterable[MessageQueue]
    ) -> Offsets:
        """Return offsets for all queues from `earliest`, `latest` or a list of some.

        Queues that a list omits begin at the earliest offset. SourceError: it names a queue
        that does not exist, or an offset beyond the queue's end.
        """
        existing = set(queues)
        if isinstance(wanted, str):
            return self.latest(existing) if wanted == "latest" else self.earliest(existing)
        if unknown := sorted(set(wanted) - existing):
            raise SourceError(
                f"the offsets name {unknown[0]}, which is not a queue of the subscribed topics"
            )
        offsets = {queue: wanted.get(queue, EARLIEST) for queue in existing}
        offsets |= self._within({queue: at for queue, at in wanted.items() if at >= 0})
        offsets |= self.earliest(queue for queue, at in offsets.items() if at == EARLIEST)
        offsets |= self.latest(queue for queue, at in offsets.items() if at == LATEST)
        return offsets

    def at_times(self, times: Times, queues: Iterable[MessageQueue], *, strict: bool) -> Offsets:
        """Return the first offset stored at a queue's time or later, of queues that have a time.

        SourceError: `strict`, and a queue has no such message, or the times name no queue of ours.
        """
        existing = set(queues)
        if unknown := sorted(set(times.of_queues) - existing):
            raise SourceError(
                f"the times name {unknown[0]}, which is not a queue of the subscribed topics"
            )
        ends = self.latest(existing)
        found: Offsets = {}
        with _as_source_error():
            consumer = consumer_of(self._options)
            for queue in sorted(existing):
                if (time := times.of(queue)) is None:
                    continue
                found[queue] = min(consumer.offset_at(queue, time), ends[queue])
                if strict and found[queue] == ends[queue]:
                    raise SourceError(
                        f"{queue} has no message that was stored at the startingTimestamp or later:"
                        ' .option("timestampNotFound", "latest") begins at its end'
                    )
        return found

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> Offsets:
        """Return a group's offsets, of the queues for which it has one."""
        with _as_source_error():
            consumer = client_of(self._options).pull_consumer(group)
            told = {queue: consumer.committed(queue) for queue in queues}
        return {queue: offset for queue, offset in told.items() if offset is not None}

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit a group's offsets, which nothing of ours reads but `startingOffsets=group`."""
        with _as_source_error():
            consumer = client_of(self._options).pull_consumer(group)
            for queue, offset in offsets.items():
                consumer.commit(queue, offset)

    def _within(self, named: Offsets) -> Offsets:
        """Refuse or limit offsets of an option that lie beyond a queue's end."""
        from imago_spark.options import OnDataLoss

        ends = self.latest(named)
        if self._options.on_data_loss is OnDataLoss.SKIP:
            return {queue: min(at, ends[queue]) for queue, at in named.items()}
        for queue, at in sorted(named.items()):
            if at > ends[queue]:
                raise SourceError(
                    f"the offsets name {queue} at {at}, but it ends at {ends[queue]};"
                    " onDataLoss=skip takes the end instead"
                )
        return named


def scan_limits(options: SourceOptions) -> ScanLimits:
    """Return how large answers are, and with how much patience they are asked for."""
    return ScanLimits(piece_bytes=options.fetch_bytes, retries=options.retries)


def pieces(options: SourceOptions, wanted: QueueRange) -> Iterator[Pulled]:
    """Pull a range of a queue piece by piece; the last piece may extend beyond the range.

    DataLossError: the queue lacks a part of the range, and the query must not skip it.
    """
    limits = scan_limits(options)
    start, end = wanted.start, wanted.end
    with _as_source_error():
        consumer = consumer_of(options)
        while start < end:
            resumed = None
            for piece in consumer.scan(wanted.queue, start, end, limits):
                if piece.status is PullStatus.FOUND:
                    start = piece.next_offset
                    yield piece
                else:
                    resumed = after_loss(options, wanted, start, piece)
            if resumed is None:
                return
            start = resumed


def check_incarnation(options: SourceOptions, *planned: QueueRange) -> None:
    """Refuse records of a topic that somebody created anew since the query planned the ranges."""
    for wanted in {(one.queue.topic, one.queue.shard): one for one in planned}.values():
        if wanted.incarnation is None:
            continue
        with _as_source_error():
            end = consumer_of(options).end(wanted.queue)
        if end.incarnation is None:
            raise DataLossError(gone_text(wanted.queue, wanted.start))
        if not wanted.incarnation.is_same(Incarnation(end.topic_id, end.incarnation)):
            raise DataLossError(made_anew_text(wanted.queue, wanted.start))


WENT_FOR_ROOM = "for want of room"
"""Part of a broker's remark on a read before a queue's start: no setting had its messages go."""


def after_loss(options: SourceOptions, wanted: QueueRange, at: int, piece: Pulled) -> int:
    """Return the offset at which to continue when a queue lacks an offset of the range."""
    from imago_spark.options import OnDataLoss

    if piece.max_offset < wanted.end:
        raise DataLossError(
            f"{wanted.queue}: offsets up to {wanted.end} were promised, the queue now ends at"
            f" {piece.max_offset}: its history was cut (an election that allowed data loss, or a"
            " topic deleted and created again); start with a new checkpoint"
        )
    if options.on_data_loss is OnDataLoss.FAIL:
        cause, cure = "by retention", "keep messages longer"
        if WENT_FOR_ROOM in piece.remark:
            cause, cure = "for want of room on the broker's disk", "give the disk room"
        raise DataLossError(
            f"{wanted.queue}: offsets {at} to {piece.min_offset - 1} are gone {cause}, the queue"
            f" begins at {piece.min_offset}; read sooner, {cure}, or set"
            ' .option("onDataLoss", "skip")'
        )
    return max(at + 1, piece.min_offset)


@contextlib.contextmanager
def _not_there() -> Iterator[None]:
    """Pass over a topic or queue that is in no route; not a shard that only has no master now."""
    try:
        yield
    except NoQueuesError:
        pass
    except NoMasterError:
        raise
    except NoRouteError:
        pass


@contextlib.contextmanager
def _as_source_error() -> Iterator[None]:
    """Turn a client's error into one that Spark shows with our message first."""
    try:
        yield
    except ClientError as error:
        raise SourceError(str(error)) from error
