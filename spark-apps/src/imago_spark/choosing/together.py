"""Asking for many queues at once: a topic of thousands takes a few requests a shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.messages import QueueEnd

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable, Iterator

    from imago_client.blocking.rocketmq.pull_consumer import PullConsumer
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import ShardBounds


def together(
    consumer: PullConsumer,
    queues: Iterable[MessageQueue],
    passing_over: Callable[[], contextlib.AbstractContextManager[None]],
) -> Iterator[tuple[list[MessageQueue], ShardBounds | None]]:
    """Yield queues by topic and shard, with what its broker says of all of them.

    None: they have to be asked for one after another. Left out: those of a topic or shard that the
    broker's answer makes `passing_over` pass over.
    """
    places: dict[tuple[str, str], list[MessageQueue]] = {}
    for queue in queues:
        places.setdefault((queue.topic, queue.shard), []).append(queue)
    for (topic, shard), own in places.items():
        if len(own) == 1:
            yield own, None
            continue
        parts: list[tuple[list[MessageQueue], ShardBounds | None]] = []
        with passing_over():
            told = consumer.shard_bounds(topic, shard, 1 + max(one.queue_id for one in own))
            known = 0 if told is None else len(told.queues)
            parts.append(([one for one in own if one.queue_id < known], told))
            # The topic shrank: what its other queues still hold is of interest, too.
            parts.append(([one for one in own if one.queue_id >= known], None))
        yield from parts


def end_of(told: ShardBounds, queue: MessageQueue) -> QueueEnd:
    """Return what the broker says of one of these queues."""
    _, end = told.queues[queue.queue_id]
    return QueueEnd(end, told.incarnation, told.topic_id, told.cluster_id)
