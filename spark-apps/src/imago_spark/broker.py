"""Requests of the source to brokers, over one client per process."""

from __future__ import annotations

import contextlib
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from imago_client.blocking import Client
from imago_client.blocking.scan import ScanLimits
from imago_client.config import ClientConfig
from imago_client.errors import ClientError, ProducerFencedError
from imago_client.messages import PullStatus
from imago_spark.errors import DataLossError, FencedError, SourceError
from imago_spark.offsets import EARLIEST, LATEST, split
from imago_spark.options import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from imago_client.blocking.consumers import PullConsumer
    from imago_client.message_queue import MessageQueue
    from imago_client.received import Pulled
    from imago_spark.offsets import Incarnations, Offsets, QueueRange
    from imago_spark.options import FencedRun, SourceOptions

GROUP: Final = "IMAGO_SPARK"
"""The name under which queries pull. They commit nothing for it."""

_SAMPLES: Final = 3
_SAMPLE_ROWS: Final = 8
_SAMPLED_FROM: Final = 10_000
"""Longer ranges are sampled anew; of shorter ones what was seen last is good enough."""
_SYSTEM_PREFIXES: Final = ("%", "RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_")
_SYSTEM_SUFFIXES: Final = ("_REPLY_TOPIC",)
_SYSTEM_TOPICS: Final = frozenset(
    {"TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "IMAGO_META"}
)

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
        self._row_bytes: dict[MessageQueue, float] = {}

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
        names = client_of(options).admin.topics()
        return [
            name
            for name in names
            if whole(name) and (options.include_system or not _is_system(name))
        ]

    def earliest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the first offset of each queue that still exists."""
        with _as_source_error():
            consumer = consumer_of(self._options)
            return {queue: consumer.min_offset(queue) for queue in queues}

    def latest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the end of each queue: what every in-sync member holds."""
        return self.ends(queues)[0]

    def ends(self, queues: Iterable[MessageQueue]) -> tuple[Offsets, Incarnations]:
        """Return the end of each queue, and the incarnations of the topics."""
        offsets: Offsets = {}
        incarnations: Incarnations = {}
        with _as_source_error():
            consumer = consumer_of(self._options)
            for queue in queues:
                offsets[queue], incarnation = consumer.end(queue)
                if incarnation is not None:
                    incarnations[queue.topic, queue.shard] = incarnation
        return offsets, incarnations

    def split(self, wanted: Sequence[QueueRange]) -> list[QueueRange]:
        """Cut ranges into parts of about `splitBytes`."""
        for one in wanted:
            if one.end - one.start > _SAMPLED_FROM or one.queue not in self._row_bytes:
                self._row_bytes[one.queue] = self._mean_row_bytes(one)
        return split(
            wanted,
            self._row_bytes,
            split_bytes=self._options.split_bytes,
            partitions_min=self._options.partitions_min,
        )

    def _mean_row_bytes(self, wanted: QueueRange) -> float:
        """Return the approximate size of a range's records, from a few of them."""
        rows = size = 0
        with _as_source_error():
            consumer = consumer_of(self._options)
            for part in range(_SAMPLES):
                at = wanted.start + (wanted.end - wanted.start) * part // _SAMPLES
                found = consumer.pull(wanted.queue, at, messages_max=_SAMPLE_ROWS)
                if found.status is PullStatus.FOUND:
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


def pieces(options: SourceOptions, wanted: QueueRange) -> Iterator[Pulled]:
    """Pull a range of a queue piece by piece; the last piece may extend beyond the range.

    DataLossError: the queue lacks a part of the range, and the query must not skip it.
    """
    limits = ScanLimits(piece_bytes=options.fetch_bytes, retries=options.retries)
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


def check_incarnation(options: SourceOptions, wanted: QueueRange) -> None:
    """Refuse records of a topic that somebody created anew since the query planned the range."""
    if wanted.incarnation is None:
        return
    with _as_source_error():
        found = consumer_of(options).end(wanted.queue).incarnation
    if found != wanted.incarnation:
        raise DataLossError(made_anew_text(wanted.queue.topic, wanted.queue.shard))


def made_anew_text(topic: str, shard: str) -> str:
    """Return the message about a recreated topic: the messages that the query has read are gone."""
    return (
        f"topic {topic!r} on {shard} was deleted and created again since the query read it: its"
        " offsets mean other messages now; start with a new checkpointLocation, or set"
        ' .option("onDataLoss", "skip") to read the new topic from its beginning'
    )


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
        raise DataLossError(
            f"{wanted.queue}: offsets {at} to {piece.min_offset - 1} are gone by retention, the"
            f" queue begins at {piece.min_offset}; read sooner, keep messages longer, or set"
            ' .option("onDataLoss", "skip")'
        )
    return max(at + 1, piece.min_offset)


def _is_system(topic: str) -> bool:
    named = topic.startswith(_SYSTEM_PREFIXES) or topic.endswith(_SYSTEM_SUFFIXES)
    return named or topic in _SYSTEM_TOPICS


@contextlib.contextmanager
def _as_source_error() -> Iterator[None]:
    """Turn a client's error into one that Spark shows with our message first."""
    try:
        yield
    except ClientError as error:
        raise SourceError(str(error)) from error
