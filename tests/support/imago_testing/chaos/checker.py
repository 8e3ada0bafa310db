"""Compare a history with what was promised. Pure: a history in, broken promises out.

Promises: an acknowledged message is there, once, where it was said to be; messages of one
producer keep their order in a queue; a place never shows another message than it once did;
places follow each other without a hole; ids are unique; nothing appears that nobody sent; a
consumer misses nothing; a committed offset never goes back once it was told; both protocols show
the same messages, byte for byte, in the same order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from imago_testing.chaos.history import Protocol, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_testing.chaos.history import History, Key, Progress, Queue, Stored


class Broken(Enum):
    LOST = "an acknowledged message is not there"
    MOVED = "an acknowledged message is not where it was said to be"
    DUPLICATED = "a message is there more than once"
    REORDERED = "messages of one producer changed their order"
    RENAMED = "an acknowledged message has another id than was said"
    REUSED = "two messages have the same id"
    UNSTABLE = "a place once showed another message"
    PHANTOM = "a message that nobody sent, or a damaged one"
    MISSED = "a consumer never saw a message"
    ASTRAY = "a consumer was sent away from where it wanted to go on"
    REWOUND = "a committed offset went back"
    INVENTED = "a committed offset that nobody committed"
    DISAGREED = "the two protocols show different messages"
    GAP = "the places of a queue do not follow each other"


@dataclass(frozen=True, slots=True)
class Violation:
    broken: Broken
    text: str

    def __str__(self) -> str:
        return f"{self.broken.name}: {self.text}"


def check(history: History) -> list[Violation]:
    """Return every broken promise of a run."""
    return [
        *_acknowledged(history),
        *_once(history),
        *_named_once(history),
        *_in_order(history),
        *_sent_by_somebody(history),
        *_stable(history),
        *_complete(history),
        *_gone_on(history),
        *_progress(history),
        *_agreed(history),
        *_contiguous(history),
    ]


def _acknowledged(history: History) -> Iterator[Violation]:
    there = {stored.key for stored in _all_stored(history, Protocol.ROCKETMQ)}
    places = {
        (protocol, queue, stored.at): stored
        for (protocol, queue), messages in history.final.items()
        for stored in messages
    }
    for key, place in history.acked.items():
        found = places.get((place.protocol, place.queue, place.at))
        if key not in there:
            yield Violation(Broken.LOST, f"{key}, acknowledged as {place}")
        elif found is None or found.key != key:
            yield Violation(Broken.MOVED, f"{key}, acknowledged as {place}")
        elif found.id != place.id:
            yield Violation(Broken.RENAMED, f"{key}: {place.id} at first, {found.id} now")


def _once(history: History) -> Iterator[Violation]:
    counts = Counter(stored.key for stored in _all_stored(history, Protocol.ROCKETMQ))
    for key, count in counts.items():
        if key is not None and count > 1:
            yield Violation(Broken.DUPLICATED, f"{key}, {count} times")


def _named_once(history: History) -> Iterator[Violation]:
    for protocol in Protocol:
        counts = Counter(stored.id for stored in _all_stored(history, protocol))
        for message_id, count in counts.items():
            if count > 1:
                yield Violation(
                    Broken.REUSED, f"{protocol.value} id {message_id} of {count} messages"
                )


def _in_order(history: History) -> Iterator[Violation]:
    for (protocol, queue), messages in history.final.items():
        last: dict[int, int] = {}
        for stored in messages:
            if stored.key is None:
                continue
            before = last.get(stored.key.producer, -1)
            if stored.key.number < before:
                where = f"{protocol.value} {queue} at {stored.at}"
                yield Violation(Broken.REORDERED, f"{stored.key} behind number {before}, {where}")
            last[stored.key.producer] = stored.key.number


def _sent_by_somebody(history: History) -> Iterator[Violation]:
    for (protocol, queue), messages in history.final.items():
        for stored in messages:
            sent = None if stored.key is None else history.attempted.get(stored.key)
            if sent != stored.content:
                where = f"{protocol.value} {queue} at {stored.at}"
                yield Violation(Broken.PHANTOM, f"{where}: {stored.key}")


def _stable(history: History) -> Iterator[Violation]:
    final = {
        where: {stored.at: stored for stored in messages}
        for where, messages in history.final.items()
    }
    for protocol, queue, stored in history.reads:
        now = final.get((protocol, queue), {}).get(stored.at)
        if now != stored:
            where = f"{protocol.value} {queue} at {stored.at}"
            yield Violation(Broken.UNSTABLE, f"{where}: first {stored}, in the end {now}")


def _complete(history: History) -> Iterator[Violation]:
    seen: dict[tuple[Protocol, Queue], set[int]] = {}
    for protocol, queue, stored in history.reads:
        seen.setdefault((protocol, queue), set()).add(stored.at)
    for (protocol, queue), messages in history.final.items():
        for stored in messages:
            if stored.at not in seen.get((protocol, queue), set()):
                where = f"{protocol.value} {queue} at {stored.at}"
                yield Violation(Broken.MISSED, f"{stored.key}, {where}")


def _gone_on(history: History) -> Iterator[Violation]:
    for protocol, queue, at in history.astray:
        yield Violation(Broken.ASTRAY, f"{protocol.value} {queue} at {at}")


def _progress(history: History) -> Iterator[Violation]:
    by_queue: dict[Queue, list[Progress]] = {}
    for each in history.progress:
        by_queue.setdefault(each.queue, []).append(each)
    for queue, steps in by_queue.items():
        yield from _progress_of(queue, steps)


def _progress_of(queue: Queue, steps: list[Progress]) -> Iterator[Violation]:
    told = tried = safe = 0
    for each in steps:
        match each.step:
            case Step.TRIED:
                tried = max(tried, each.offset)
            case Step.LOST:
                safe = told
            case Step.COMMITTED | Step.TOLD:
                if each.offset < safe:
                    yield Violation(Broken.REWOUND, f"{queue}: {safe}, later {each.offset}")
                if each.offset > tried:
                    yield Violation(Broken.INVENTED, f"{queue}: {each.offset}")
                safe = max(safe, each.offset)
                # What the broker told is a promise that outlives it.
                told = max(told, each.offset) if each.step is Step.TOLD else told


def _agreed(history: History) -> Iterator[Violation]:
    for queue in sorted({queue for _, queue in history.final}):
        metaq = _messages(history, Protocol.METAQ, queue)
        rocketmq = _messages(history, Protocol.ROCKETMQ, queue)
        if metaq != rocketmq:
            pairs = enumerate(zip(metaq, rocketmq, strict=False))
            end = min(len(metaq), len(rocketmq))
            first = next((index for index, (one, other) in pairs if one != other), end)
            counts = f"{len(metaq)} and {len(rocketmq)} messages"
            yield Violation(Broken.DISAGREED, f"{queue}: {counts}, different from {first} on")


def _contiguous(history: History) -> Iterator[Violation]:
    for (protocol, queue), messages in history.final.items():
        expected = 0
        for stored in messages:
            if stored.at != expected:
                where = f"{protocol.value} {queue}"
                yield Violation(Broken.GAP, f"{where}: at {stored.at} instead of {expected}")
            expected = stored.at + stored.size


def _messages(history: History, protocol: Protocol, queue: Queue) -> list[tuple[Key | None, int]]:
    return [(stored.key, stored.content) for stored in history.final.get((protocol, queue), [])]


def _all_stored(history: History, protocol: Protocol) -> Iterator[Stored]:
    for (each, _), messages in history.final.items():
        if each is protocol:
            yield from messages
