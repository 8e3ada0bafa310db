"""What is left on a shard that is being drained: all that the broker has not written for itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_broker.core.placing.moves import Unread, total, unread
from imago_broker.model import names
from imago_broker.model.topics.attributes import has_lite_topics
from imago_broker.model.topics.sealing import seal_of, takes_messages
from imago_broker.service.delays.firing_log import timers_waiting
from imago_broker.service.delays.levels.level_progress import KIND as DELAY_KIND
from imago_broker.service.delays.levels.levels import LEVELS_MAX
from imago_broker.service.readers import reached
from imago_broker.service.transactions.transaction_log import find_open
from imago_broker.shard_work import readers
from imago_broker.shard_work.errors import AdminError
from imago_wire.record_format.entries import PLACED_SIZE
from imago_wire.record_format.references import lite_parent

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from imago_broker.core.placing.moves import Bounds
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.shard_work.readers import Readers
    from imago_broker.shard_work.services import ShardServices
    from imago_log.store import MessageStore

    Committed = Mapping[str, Mapping[str, Mapping[int, int]]]
    """By topic, group and queue: how far groups are here. A group without an offset in a queue has
    read nothing of it."""

METAQ_MARK = " (MetaQ)"
"""Behind the name of a group whose consumers tell their progress in MetaQ's tree."""
LISTED_MAX = 20
SAMPLE = 1000
TOPICS_A_TURN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRemaining:
    """What keeps a shard from being drained."""

    topics: tuple[str, ...]
    """Topics that take messages here still."""
    open_queues: int
    """Queues that take messages: theirs, and those in which late producers are served."""
    unread_topics: tuple[str, ...]
    unread: Unread
    bytes: int
    """About as many bytes of the log as `unread.messages` are."""
    delayed: int
    """Messages that wait for their time, or for the end of their transaction."""
    transactions: int
    """MetaQ's transactions: those that have messages, and those that were decided by a person."""
    lingers_until_ms: int
    """Until when producers that have not looked are served; 0: no longer."""
    expires_ms: int | None
    """When the last unread message may expire; None: never, or nothing is left."""
    settled: bool
    """Whether readers see all that is in the log, and nothing moved while it was counted."""
    blocked: str

    @property
    def done(self) -> bool:
        """Whether nothing of value is left."""
        busy = self.topics or self.unread.queues or self.delayed or self.lingers_until_ms
        return self.settled and not (busy or self.transactions or self.blocked)

    def to_json(self) -> dict[str, Any]:
        groups = sorted(self.unread.groups.items(), key=lambda item: -item[1])
        return {
            "done": self.done,
            "openQueues": self.open_queues,
            "topicsToMove": len(self.topics),
            "toMove": list(self.topics[:LISTED_MAX]),
            "unreadTopics": len(self.unread_topics),
            "unread": list(self.unread_topics[:LISTED_MAX]),
            "queues": self.unread.queues,
            "messages": self.unread.messages,
            "bytes": self.bytes,
            "groups": dict(groups[:LISTED_MAX]),
            "unclaimedMessages": self.unread.unclaimed,
            "delayedMessages": self.delayed,
            "transactions": self.transactions,
            "takesMessagesUntil": self.lingers_until_ms or None,
            "lastExpiresAt": self.expires_ms,
            "blocked": self.blocked or None,
        }


@dataclass(slots=True)
class DrainProgress:
    """Where a shard's drain has come to."""

    remaining: ShardRemaining | None = None
    """What was left when it was looked last; None while the shard is not drained by us."""


def movable(config: TopicConfig) -> bool:
    """Whether a topic leaves with its shard's drain: all in which there is what clients have sent.

    Or may be: `names.BROKERS_ALONE` says which those are that no client writes or reads.
    """
    return config.name not in names.BROKERS_ALONE


async def measure(services: ShardServices, blocked: str) -> ShardRemaining:
    """Check all topics of this shard, a few a turn of the loop."""
    store, cluster = services.store, services.topics.cluster
    known, silent = await _readers(services)
    configs = [config for config in services.topics.all() if movable(config)]
    committed = await _committed(services, configs, known)
    await asyncio.sleep(0)  # what was taken in this turn is in the log after it
    services.offsets.flush()
    log_end, now_ms = store.log_end, services.clock.epoch_ms()
    by_lite = {lite_parent(name) for name, groups in committed.items() if any(groups.values())}
    left: dict[str, tuple[Unread, int, int | None]] = {}
    for number, config in enumerate((*configs, *services.topics.light.all())):
        if number % TOPICS_A_TURN == TOPICS_A_TURN - 1:
            await asyncio.sleep(0)
        of_topic = committed.get(config.name, {})
        if config.name == names.reply_topic(cluster) and not of_topic:
            continue  # copies of what was given to those who waited for it
        if has_lite_topics(config) and config.name in by_lite and not any(of_topic.values()):
            continue  # its groups read it by lite topics, and those are counted
        # Also those that a topic has no more: whoever gives it as many again finds their messages.
        queues = {*range(config.queues), *store.queues(config.name)}
        bounds = {queue: store.queue_range(config.name, queue) for queue in sorted(queues)}
        if config.name in services.topics.light:
            bounds = {0: await _readable(store, config.name, bounds[0], of_topic)}
        found = _of_topic(services, config.name, bounds, of_topic)
        if found[0].queues:
            left[config.name] = found
    expiries = [ms for _, _, ms in left.values()]
    seals = [seal for config in configs if (seal := seal_of(config))]
    # What every shard has is closed by the drain itself, at once, or as the shard is put on record.
    wanted = [config for config in configs if not names.on_every_shard(config.name, cluster)]
    transactions = services.metaq_transactions
    unended = [each.count for each in transactions.open if each.count]
    return ShardRemaining(
        topics=tuple(config.name for config in wanted if takes_messages(config)),
        open_queues=sum(_open_queues(config, now_ms) for config in wanted),
        unread_topics=tuple(left),
        unread=total(part for part, _, _ in left.values()),
        bytes=sum(size for _, size, _ in left.values()),
        delayed=_delayed(services) + len(find_open(store).open) + sum(unended),
        transactions=len(unended) + len(transactions.open.heuristic),
        lingers_until_ms=max((s.until_ms for s in seals if s.until_ms > now_ms), default=0),
        expires_ms=None if None in expiries else max((ms for ms in expiries if ms), default=None),
        # What moves meanwhile, from where it waits to its topic or from there to the retries, may
        # be in none of the sums.
        settled=transactions.ready and store.log_end == log_end <= store.high_watermark,
        blocked=blocked or readers.unknown(services) or silent,
    )


async def _readers(services: ShardServices) -> tuple[Readers, str]:
    """Return who reads what, here or elsewhere, and which shard does not say."""
    silent, elsewhere = "", {}
    try:
        elsewhere = await readers.elsewhere(services)
    except AdminError as error:
        silent = str(error)
    return readers.together(readers.here(services), elsewhere), silent


async def _committed(
    services: ShardServices, configs: Collection[TopicConfig], known: Readers
) -> Committed:
    """Return how far every group is that reads a topic, wherever it was seen."""
    duals = {config.name for config in configs if config.dual}
    progress = await services.metaq_consumers.metaq_progress(duals)
    offsets = services.offsets.by_topic()
    found: dict[str, dict[str, Mapping[int, int]]] = {}
    for topic, groups in known.items():
        here = offsets.get(topic, {})
        found[topic] = {group: here.get(group, {}) for group in groups}
    for topic, of_groups in progress.items():
        for group, positions in of_groups.items():
            found.setdefault(topic, {})[group + METAQ_MARK] = {
                queue: reached(services.store, topic, queue, position)
                for queue, position in positions.items()
            }
    return found


def _open_queues(config: TopicConfig, now_ms: int) -> int:
    seal = seal_of(config)
    if seal is not None:
        return seal.write_queues if seal.until_ms > now_ms else 0
    return config.write_queues if takes_messages(config) else 0


async def _readable(
    store: MessageStore, name: str, bounds: Bounds, committed: Mapping[str, Mapping[int, int]]
) -> Bounds:
    """Return a light queue's bounds without what leads to no message at its beginning.

    Its references outlive the topics of their messages: nobody can read those any more.
    """
    first, end = bounds
    at = min((max(first, offsets.get(0, first)) for offsets in committed.values()), default=first)
    while at < end:
        read = store.read(name, 0, at, messages_max=1, bytes_max=1)
        if read.count:
            return read.next_offset - 1, end
        if read.next_offset <= at:
            return at, end  # it may be read later
        at = read.next_offset
        await asyncio.sleep(0)
    return end, end


def _of_topic(
    services: ShardServices,
    name: str,
    bounds: Mapping[int, Bounds],
    committed: Mapping[str, Mapping[int, int]],
) -> tuple[Unread, int, int | None]:
    """Return what is unread of a topic, about how many bytes, and when the last of it expires."""
    if all(first == end for first, end in bounds.values()):
        return Unread(), 0, None
    found, queues = unread(bounds, committed)
    newest = max((_newest(services, name, queue, bounds[queue]) for queue in queues), default=0)
    # A topic's own retention removes its MetaQ files; the shared log keeps what they held.
    retention_ms = services.config.store.retention_ms
    expires = newest + retention_ms if newest and retention_ms else None
    return found, _bytes(services, name, queues, bounds, found.messages), expires


def _newest(services: ShardServices, topic: str, queue: int, bounds: tuple[int, int]) -> int:
    return services.store.store_time(topic, queue, bounds[1] - 1) or 0


def _bytes(
    services: ShardServices,
    topic: str,
    queues: Collection[int],
    bounds: Mapping[int, tuple[int, int]],
    messages: int,
) -> int:
    """Return the size of so many messages, by that of the first of each queue."""
    sizes: list[int] = []
    for queue in queues:
        first, end = bounds[queue]
        places = services.store.placed(topic, queue, first, min(end - first, SAMPLE))
        sizes += (place[PLACED_SIZE] for place in places)
    return messages * sum(sizes) // len(sizes) if sizes else 0


def _delayed(services: ShardServices) -> int:
    """Return how many messages wait for their time here, to be put where they belong."""
    store, waiting = services.store, 0
    progress = store.meta(DELAY_KIND)
    for level in range(1, LEVELS_MAX + 1):
        first, end = store.queue_range(names.SCHEDULE_TOPIC, level - 1)
        come = progress.get(str(level), 0)
        waiting += max(0, end - max(first, come if isinstance(come, int) else 0))
    return waiting + timers_waiting(store)
