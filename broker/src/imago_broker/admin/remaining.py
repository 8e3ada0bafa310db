"""What is left on a shard that is being drained."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from imago_broker.core.moves import Unread, total, unread
from imago_broker.model import names
from imago_broker.model.sealing import seal_of, takes_messages
from imago_broker.service.delays.firing_log import timers_waiting
from imago_broker.service.delays.level_progress import KIND as DELAY_KIND
from imago_broker.service.delays.levels import LEVELS_MAX
from imago_broker.service.transactions.transaction_log import find_open
from imago_wire.entries import PLACED_SIZE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.topics import TopicConfig
    from imago_broker.ports import MetaqProgress

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
    lingers_until_ms: int
    """Until when producers that have not looked are served; 0: no longer."""
    expires_ms: int | None
    """When the last unread message may expire; None: never, or nothing is left."""
    settled: bool
    """Whether readers see all that is in the log."""
    blocked: str

    @property
    def done(self) -> bool:
        """Whether nothing of value is left."""
        busy = self.topics or self.unread.queues or self.delayed or self.lingers_until_ms
        return self.settled and not busy

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
            "takesMessagesUntil": self.lingers_until_ms or None,
            "lastExpiresAt": self.expires_ms,
            "blocked": self.blocked or None,
        }


@dataclass(slots=True)
class DrainProgress:
    """Where a shard's drain has come to."""

    remaining: ShardRemaining | None = None
    """What was left when it was looked last; None while the shard is not drained by us."""


PROGRESS = web.AppKey("progress", DrainProgress)


def movable(config: TopicConfig) -> bool:
    """Whether a topic leaves with its shard's drain: all but what the broker itself needs."""
    return not names.is_system(config.name)


async def measure(services: AdminServices, blocked: str) -> ShardRemaining:
    """Check all topics of this shard, a few a turn of the loop."""
    configs = [config for config in services.topics.all() if movable(config)]
    now_ms, log_end = services.clock.epoch_ms(), services.store.log_end
    seen = services.store.high_watermark >= log_end
    duals = {config.name for config in configs if config.dual}
    metaq = await services.metaq_consumers.metaq_progress(duals)
    left: dict[str, tuple[Unread, int, int | None]] = {}
    for number, config in enumerate(configs):
        if number % TOPICS_A_TURN == 0:
            await asyncio.sleep(0)
        found = _of_topic(services, config, metaq)
        if found[0].queues:
            left[config.name] = found
    expiries = [ms for _, _, ms in left.values()]
    seals = [seal for config in configs if (seal := seal_of(config))]
    return ShardRemaining(
        topics=tuple(config.name for config in configs if takes_messages(config)),
        open_queues=sum(_open_queues(config, now_ms) for config in configs),
        unread_topics=tuple(left),
        unread=total(part for part, _, _ in left.values()),
        bytes=sum(size for _, size, _ in left.values()),
        delayed=_delayed(services) + len(find_open(services.store).open),
        lingers_until_ms=max((s.until_ms for s in seals if s.until_ms > now_ms), default=0),
        expires_ms=None if None in expiries else max((ms for ms in expiries if ms), default=None),
        settled=seen,
        blocked=blocked,
    )


def _open_queues(config: TopicConfig, now_ms: int) -> int:
    seal = seal_of(config)
    if seal is not None:
        return seal.write_queues if seal.until_ms > now_ms else 0
    return config.write_queues if takes_messages(config) else 0


def _of_topic(
    services: AdminServices, config: TopicConfig, metaq: MetaqProgress
) -> tuple[Unread, int, int | None]:
    """Return what is unread of a topic, about how many bytes, and when the last of it expires."""
    store, name = services.store, config.name
    bounds = {queue: store.queue_range(name, queue) for queue in range(config.queues)}
    if all(first == end for first, end in bounds.values()):
        return Unread(), 0, None
    committed = _committed(services, name, metaq)
    found, queues = unread(bounds, committed)
    newest = max((_newest(services, name, queue, bounds[queue]) for queue in queues), default=0)
    # A topic's own retention removes its MetaQ files; the shared log keeps what they held.
    retention_ms = services.config.store.retention_ms
    expires = newest + retention_ms if newest and retention_ms else None
    return found, _bytes(services, name, queues, bounds, found.messages), expires


def _committed(
    services: AdminServices, topic: str, metaq: MetaqProgress
) -> Mapping[str, Mapping[int, int]]:
    committed = dict(services.offsets.of_topic(topic))
    for group, positions in metaq.get(topic, {}).items():
        committed[group + METAQ_MARK] = {
            queue: services.store.offset_of(topic, queue, position)
            for queue, position in positions.items()
        }
    return committed


def _newest(services: AdminServices, topic: str, queue: int, bounds: tuple[int, int]) -> int:
    return services.store.store_time(topic, queue, bounds[1] - 1) or 0


def _bytes(
    services: AdminServices,
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


def _delayed(services: AdminServices) -> int:
    """Return how many messages wait for their time here, to be put where they belong."""
    store, waiting = services.store, 0
    progress = store.meta(DELAY_KIND)
    for level in range(1, LEVELS_MAX + 1):
        first, end = store.queue_range(names.SCHEDULE_TOPIC, level - 1)
        come = progress.get(str(level), 0)
        waiting += max(0, end - max(first, come if isinstance(come, int) else 0))
    return waiting + timers_waiting(store)
