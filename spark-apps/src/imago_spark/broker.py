"""What the source asks of brokers, over one client per process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from imago_client.blocking import Client
from imago_client.blocking.scan import ScanLimits
from imago_client.config import ClientConfig
from imago_client.errors import ClientError
from imago_client.messages import PullStatus
from imago_spark.errors import DataLossError, SourceError
from imago_spark.offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imago_client.blocking.consumers import PullConsumer
    from imago_client.messages import MessageQueue
    from imago_client.received import Pulled
    from imago_spark.offsets import Offsets, QueueRange
    from imago_spark.options import SourceOptions

GROUP: Final = "IMAGO_SPARK"
"""The name under which queries pull. They commit nothing for it."""

_clients: dict[tuple[tuple[str, ...], float], Client] = {}
"""Spark reuses worker processes over batches, and their connections with them."""


def consumer_of(options: SourceOptions) -> PullConsumer:
    """Return this process's consumer for a cluster."""
    key = (options.bootstrap, options.timeout_s)
    client = _clients.get(key)
    if client is None:
        config = ClientConfig(
            bootstrap=options.bootstrap,
            request_timeout_s=options.timeout_s,
            connect_timeout_s=options.timeout_s,
        )
        client = _clients[key] = Client(config)
    return client.pull_consumer(GROUP)


def close_clients() -> None:
    """Close what this process has opened."""
    for client in _clients.values():
        client.close()
    _clients.clear()


class TopicBrokers:
    """The queues of a query's topics, and their bounds."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def queues(self) -> list[MessageQueue]:
        """Return all queues that can be read, sorted."""
        with _as_source_error():
            consumer = consumer_of(self._options)
            return sorted(
                queue for topic in self._options.topics for queue in consumer.queues(topic)
            )

    def earliest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the first offset of each queue that still exists."""
        with _as_source_error():
            consumer = consumer_of(self._options)
            return {queue: consumer.min_offset(queue) for queue in queues}

    def latest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the end of each queue: what every in-sync member holds."""
        with _as_source_error():
            consumer = consumer_of(self._options)
            return {queue: consumer.max_offset(queue) for queue in queues}

    def resolve(
        self, wanted: str | Mapping[MessageQueue, int], queues: Iterable[MessageQueue]
    ) -> Offsets:
        """Return offsets for all queues out of `earliest`, `latest` or a list of some.

        Queues that a list leaves out begin at the earliest offset. SourceError: it names a queue
        that does not exist.
        """
        existing = set(queues)
        if isinstance(wanted, str):
            return self.latest(existing) if wanted == "latest" else self.earliest(existing)
        if unknown := sorted(set(wanted) - existing):
            raise SourceError(
                f"the offsets name {unknown[0]}, which is not a queue of the subscribed topics"
            )
        offsets = {queue: wanted.get(queue, EARLIEST) for queue in existing}
        offsets |= self.earliest(queue for queue, at in offsets.items() if at == EARLIEST)
        offsets |= self.latest(queue for queue, at in offsets.items() if at == LATEST)
        return offsets


def pieces(options: SourceOptions, wanted: QueueRange) -> Iterator[Pulled]:
    """Pull a range of a queue piece by piece; the last one may reach beyond the range.

    DataLossError: the queue does not hold all of the range, unless that is to be skipped.
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


def after_loss(options: SourceOptions, wanted: QueueRange, at: int, piece: Pulled) -> int:
    """Return where to go on when a queue has no message at an offset that the range contains."""
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


@contextlib.contextmanager
def _as_source_error() -> Iterator[None]:
    """Turn a client's error into one that Spark shows with our words first."""
    try:
        yield
    except ClientError as error:
        raise SourceError(str(error)) from error
