"""How far a query has come, and in which topics: what checkpoints, tables and options hold.

An offset means something in one topic alone. So beside offsets per queue stand the cluster, which
topic of its name each queue is of, and what the query reads; `continued` is the one rule that says
whether offsets that somebody remembered are still those of what is there now.

The engine's JSON: `{"cluster": …, "incarnations": {"orders": {"shard-0": 7}}, "subscription": {…},
"topics": {"orders": {"shard-0": {"0": 23}}}, "v": 2}`, keys sorted, since Spark compares offsets as
text. Where a topic was made by an older version, its incarnation is `[7, 1851]`: what no other
topic has, then what brokers of that version say. Version 1 had neither cluster nor subscription.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from imago_spark.choosing.topic_choice import TopicChoice
from imago_spark.errors import DataLossError, OffsetError
from imago_spark.incarnations import Incarnation, Incarnations
from imago_spark.offsets import EARLIEST, option_json, queues_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from imago_client.message_queue import MessageQueue
    from imago_spark.offsets import Offsets

_VERSION: Final = 2
_VERSIONS: Final = (1, _VERSION)
_NEW: Final = "start with a new checkpointLocation"
_SKIP: Final = 'set .option("onDataLoss", "skip")'


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Offsets of queues, and what they are offsets of."""

    offsets: Offsets
    incarnations: Incarnations = field(default_factory=dict)
    cluster: str | None = None
    """Id of the cluster; None: not known."""
    subscription: TopicChoice | None = None

    def incarnation(self, queue: MessageQueue) -> Incarnation | None:
        """Return which topic a queue is of, None where nobody said it."""
        return self.incarnations.get((queue.topic, queue.shard))

    def without(self, queues: Collection[MessageQueue]) -> Progress:
        """Return the same, as if it had never known these queues."""
        offsets = {queue: at for queue, at in self.offsets.items() if queue not in queues}
        kept = {(queue.topic, queue.shard) for queue in offsets}
        made = {key: one for key, one in self.incarnations.items() if key in kept}
        return replace(self, offsets=offsets, incarnations=made)

    def to_json(self) -> dict[str, Any]:
        """Return the engine's form."""
        made: dict[str, dict[str, int | list[int]]] = {}
        for (topic, shard), one in sorted(self.incarnations.items()):
            made.setdefault(topic, {})[shard] = one.to_json()
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for queue, offset in sorted(self.offsets.items()):
            shards = topics.setdefault(queue.topic, {})
            shards.setdefault(queue.shard, {})[str(queue.queue_id)] = offset
        found: dict[str, Any] = {} if self.cluster is None else {"cluster": self.cluster}
        if made:
            found["incarnations"] = made
        if self.subscription is not None:
            found["subscription"] = self.subscription.to_json()
        return found | {"topics": topics, "v": _VERSION}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], where: str = "checkpoint") -> Progress:
        """Read the engine's form, also that of older versions. OffsetError: it is no such thing."""
        version = value.get("v")
        if version not in _VERSIONS:
            raise OffsetError(
                f"{where} holds offsets of version {version!r}, this source writes {_VERSION};"
                f" {_NEW}"
            )
        cluster, subscription = value.get("cluster"), value.get("subscription")
        if not isinstance(cluster, str | None):
            raise OffsetError(f"{where}: its cluster is no text")
        return cls(
            offsets=queues_of(value.get("topics"), where),
            incarnations=_incarnations(value.get("incarnations", {}), where),
            cluster=cluster,
            subscription=None if subscription is None else TopicChoice.from_json(subscription),
        )


def _incarnations(value: Any, where: str) -> Incarnations:
    try:
        return {
            (topic, shard): Incarnation.from_json(one)
            for topic, shards in value.items()
            for shard, one in shards.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OffsetError(f"{where}: its incarnations are no numbers by topic and shard") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """What brokers have now, asked for with the offsets that somebody remembered."""

    read: Progress
    """The ends of the queues that the query reads."""
    waiting: Collection[MessageQueue] = ()
    """Queues of shards that have no live broker: their offsets stay as they are."""
    hidden: Progress = field(default_factory=lambda: Progress(offsets={}))
    """The ends of queues that exist, and that the query does not read."""


def continued(before: Progress, now: Existing, *, skips: bool) -> Progress:
    """Return the remembered offsets that count now.

    DataLossError: some are of another topic or cluster, or of queues that nobody reads any more
    although they have unread messages, or that are gone. `skips`: such ones are left out instead.
    A queue whose end went back is an error in both cases.
    """
    if not skips:
        _check_cluster(before, now.read)
        check_subscription(before, now.read.subscription)
    losses = {queue: why for queue in sorted(before.offsets) if (why := _loss(before, now, queue))}
    if losses and not skips:
        raise DataLossError(next(iter(losses.values())))
    kept = before.without(losses)
    for queue, offset in sorted(kept.offsets.items()):
        end = now.read.offsets.get(queue, now.hidden.offsets.get(queue))
        if end is not None and end < offset:
            raise DataLossError(
                f"{queue}: read up to offset {offset}, but the queue now ends at {end}: its"
                f" history was cut, or the topic was deleted and created again; {_NEW}"
            )
    return kept


def check_subscription(before: Progress, wanted: TopicChoice | None) -> None:
    """Refuse what was remembered by a query that reads more than this one."""
    if before.subscription is None or wanted is None or wanted.covers(before.subscription):
        return
    raise DataLossError(
        f"{_first_unread(before)} of {before.subscription}, but the query has {wanted}, which"
        " leaves out a part of that: what has not been read of it nobody would read; subscribe to"
        f" that too, {_NEW}, or {_SKIP}"
    )


def _is_read(queue: MessageQueue, wanted: TopicChoice | None) -> bool:
    """Whether a query reads a queue, wherever that may be."""
    return wanted is None or wanted.covers(TopicChoice(assigned=frozenset((queue,))))


def _is_other_cluster(before: Progress, read: Progress) -> bool:
    return None not in (before.cluster, read.cluster) and before.cluster != read.cluster


def _check_cluster(before: Progress, read: Progress) -> None:
    if _is_other_cluster(before, read):
        raise DataLossError(
            f"{_first_unread(before)} in cluster {before.cluster}, but these brokers are of cluster"
            f" {read.cluster}: its offsets mean other messages; connect to that cluster, {_NEW}, or"
            f" {_SKIP} to read the topics of this one from their beginning"
        )


def _first_unread(before: Progress) -> str:
    for queue, offset in sorted(before.offsets.items()):
        return f"{queue}: read up to offset {offset}"
    return "no queue was read yet"


def _loss(before: Progress, now: Existing, queue: MessageQueue) -> str | None:
    """Return why the offset of a queue counts no more, or None."""
    offset = before.offsets[queue]
    known = before.incarnation(queue)
    found = now.read.incarnation(queue) or now.hidden.incarnation(queue)
    if known is not None and found is not None and not known.is_same(found):
        return made_anew_text(queue, offset)
    if queue in now.read.offsets:
        if known is None:
            other = _is_other_cluster(before, now.read)
            return made_anew_text(queue, offset) if other else None
        is_told = found is not None or now.read.cluster is None
        return None if is_told else gone_text(queue, offset)
    if not _is_read(queue, now.read.subscription):
        return (
            f"{queue}: read up to offset {offset}, but the query has {now.read.subscription}, which"
            f" leaves it out: nobody would read the rest; subscribe to it too, {_NEW}, or {_SKIP}"
        )
    if queue in now.waiting:
        return None
    end = now.hidden.offsets.get(queue)
    if end is None:
        return gone_text(queue, offset)
    if end <= offset:
        return None
    return (
        f"{queue}: offsets {offset} to {end - 1} are unread, and the topic has no such queue to"
        " read any more; give it its read queues (or the permission to read them) back,"
        f" {_NEW}, or {_SKIP} to leave these messages out"
    )


def from_option(text: str, name: str) -> Progress:
    """Return what an option lists as JSON, -2 and -1 unresolved.

    Bare offsets, or what the engine's progress shows: that says which topics it is about.
    """
    value, where = option_json(text, name), f"option {name!r}"
    if isinstance(value, dict) and isinstance(value.get("v"), int):
        found = Progress.from_json(value, where)
    else:
        found = Progress(offsets=queues_of(value, where))
    for queue, offset in found.offsets.items():
        if offset < EARLIEST:
            raise OffsetError(f"{where}: offset {offset} of {queue}")
    return replace(found, subscription=None)  # it may well name a part of what was read


def made_anew_text(queue: MessageQueue, offset: int) -> str:
    """Return the message about a recreated topic: the messages that a query has read are gone."""
    return (
        f"{queue}: read up to offset {offset}, but topic {queue.topic!r} on {queue.shard} was"
        " deleted and created again since, or is another cluster's: its offsets mean other"
        f" messages now; {_NEW}, or {_SKIP} to read the new topic from its beginning"
    )


def gone_text(queue: MessageQueue, offset: int) -> str:
    """Return the message about a queue that is nowhere any more."""
    return (
        f"{queue}: messages from offset {offset} on may never have been read, and the queue is"
        f" gone: topic {queue.topic!r} was deleted, or {queue.shard} was removed; {_NEW}, or"
        f" {_SKIP} to go on without it"
    )


def lag_of(progress: StreamingQueryProgress) -> Mapping[MessageQueue, int]:
    """Return the messages of each queue that had not been read; of other sources nothing.

    `progress` is a query's `lastProgress`, or a listener's `event.progress`. What is there at its
    time counts, also what comes after an `AvailableNow` run has begun.
    """
    found: dict[MessageQueue, int] = {}
    for source in progress.sources:
        latest, end = _shown_offsets(source.latestOffset), _shown_offsets(source.endOffset)
        for queue, offset in latest.items():
            if queue in end:
                found[queue] = found.get(queue, 0) + max(0, offset - end[queue])
    return found


def _shown_offsets(text: str | None) -> Mapping[MessageQueue, int]:
    try:
        return Progress.from_json(json.loads(text or "{}")).offsets
    except (AttributeError, OffsetError, ValueError):
        return {}  # another source's
