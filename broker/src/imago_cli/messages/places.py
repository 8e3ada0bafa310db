"""Where reading begins and ends, as `--from`, `--until` and `--queue` say it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.times import time_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_client import MessageQueue
    from imago_client.blocking.rocketmq.pull_consumer import PullConsumer

_LAST: Final = re.compile(r"-(\d{1,12})", re.ASCII)
_OFFSET: Final = re.compile(r"offset:(\d{1,18})", re.ASCII)
_QUEUE: Final = re.compile(r"(?:shard-)?(\d{1,4})/(\d{1,5})", re.ASCII)
PLACE_HELP: Final = "earliest, latest, -10 (the last ten of each queue), @TIME, @-15m or offset:42"


class PlaceKind(Enum):
    """What a place is counted by."""

    EARLIEST = "earliest"
    LATEST = "latest"
    LAST = "last"
    TIME = "time"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class ReadPlace:
    """A place in each queue that is read."""

    kind: PlaceKind
    number: int = 0

    @property
    def is_simple(self) -> bool:
        """Whether a group can begin there, and a reader of MetaQ's positions."""
        return self.kind in (PlaceKind.EARLIEST, PlaceKind.LATEST)


EARLIEST: Final = ReadPlace(PlaceKind.EARLIEST)
LATEST: Final = ReadPlace(PlaceKind.LATEST)


def place_of(option: str, text: str, now_ms: int) -> ReadPlace:
    """Return the place that an option names; CommandUsageError: it names none."""
    if text in (PlaceKind.EARLIEST.value, PlaceKind.LATEST.value):
        return ReadPlace(PlaceKind(text))
    if found := _LAST.fullmatch(text):
        return ReadPlace(PlaceKind.LAST, int(found[1]))
    if found := _OFFSET.fullmatch(text):
        return ReadPlace(PlaceKind.OFFSET, int(found[1]))
    if text.startswith("@"):
        try:
            return ReadPlace(PlaceKind.TIME, time_of(text[1:], now_ms))
        except ValueError:
            pass
    raise CommandUsageError(f"{option} {text!r} is no place in a topic", cure=PLACE_HELP)


def offset_of(consumer: PullConsumer, queue: MessageQueue, place: ReadPlace) -> int:
    """Return the offset of a place in a queue, within what it holds."""
    if place.kind is PlaceKind.EARLIEST:
        return consumer.min_offset(queue)
    end = consumer.max_offset(queue)
    if place.kind is PlaceKind.LATEST:
        return end
    first = consumer.min_offset(queue)
    match place.kind:
        case PlaceKind.LAST:
            return max(first, end - place.number)
        case PlaceKind.OFFSET:
            return min(max(first, place.number), end)
        case PlaceKind.TIME:
            return min(max(first, consumer.offset_at(queue, place.number)), end)


def chosen(queues: Iterable[MessageQueue], named: Iterable[str]) -> list[MessageQueue]:
    """Return the named queues, all where none is; CommandError: one is not there."""
    there = list(queues)
    if not (wanted := list(named)):
        return there
    found = []
    for text in wanted:
        match = _QUEUE.fullmatch(text)
        if match is None:
            raise CommandUsageError(
                f"--queue {text}: is no queue", cure="write SHARD/QUEUE, like shard-0/3"
            )
        shard, number = f"shard-{int(match[1])}", int(match[2])
        fits = [q for q in there if q.shard.endswith(shard) and q.queue_id == number]
        if not fits:
            listed = ", ".join(f"{queue.shard}/{queue.queue_id}" for queue in there[:8])
            raise CommandError(
                f"--queue {text}: the topic has {listed or 'none now'}",
                cure="name one that it has; imago topic describe TOPIC lists all",
            )
        found += fits
    return found
