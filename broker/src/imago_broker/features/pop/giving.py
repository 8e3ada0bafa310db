"""What a POP has taken is given once all in-sync members know it, or is there for others again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.service.puts.put_status import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.features.pop.reading import PopAsk, PopReader, PopTake
    from imago_broker.features.pop.service import PopService
    from imago_broker.features.pop.waiting import PopWaiting
    from imago_broker.ports import Clock
    from imago_broker.service.figures.traffic import Traffic
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.topics.topics import TopicService

AGAIN_MS = 1000
"""After which who waits looks again at what could not be written and was given to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopParts:
    """What a POP needs from its first look to its answer."""

    pops: PopService
    reader: PopReader
    waiting: PopWaiting
    topics: TopicService
    groups: GroupService
    clock: Clock
    traffic: Traffic


def give(
    parts: PopParts,
    ask: PopAsk,
    take: PopTake,
    now_ms: int,
    given: Callable[[PutStatus, bytes], None],
) -> None:
    """Have `given` told, with the records that were taken, when they may be given or why not."""
    for look in take.queues:
        parts.waiting.out_until(*look.popped.key[1:], now_ms + ask.invisible_ms)
    body = b"".join([record for look in take.queues for record in look.records])
    count = sum([len(look.times) for look in take.queues])
    parts.traffic.delivered(ask.group, ask.topic, count, len(body))

    def written(status: PutStatus) -> None:
        if status is not PutStatus.OK:
            # What is not safe is not given, and is there for whoever asks next.
            failed_ms = parts.clock.epoch_ms()
            for look in take.queues:
                parts.pops.take_back(look.popped, take.stamp, failed_ms)
                parts.waiting.out_until(*look.popped.key[1:], failed_ms + AGAIN_MS)
        given(status, body)

    parts.pops.when_written(written)
