"""Compare a history with what was promised. Pure: a history in, broken promises out.

Promises: an acknowledged message is there, once, where it was said to be; messages of one
producer keep their order in a queue; a place never shows another message than it once did;
nothing appears that nobody sent; a consumer misses nothing; a committed offset never goes back;
both protocols show the same messages in the same order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from imago_testing.chaos.history import Protocol, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_testing.chaos.history import History, Key, Queue, Stored


class Broken(Enum):
    LOST = "an acknowledged message is not there"
    MOVED = "an acknowledged message is not where it was said to be"
    DUPLICATED = "a message is there more than once"
    REORDERED = "messages of one producer changed their order"
    UNSTABLE = "a place once showed another message"
    PHANTOM = "a message that nobody sent, or a damaged one"
    MISSED = "a consumer never saw a message"
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
        *_in_order(history),
        *_sent_by_somebody(history),
        *_stable(history),
        *_complete(history),
        *_progress(history),
        *_agreed(history),
        *_contiguous(history),
    ]


def _acknowledged(history: History) -> Iterator[Violation]:
    there = {stored.key for stored in _all_stored(history, Protocol.ROCKETMQ)}
    places = {
        (protocol, queue, stored.at): stored.key
        for (protocol, queue), messages in history.final.items()
        for stored in messages
    }
    for key, place in history.acked.items():
        if key not in there:
            yield Violation(Broken.LOST, f"{key}, acknowledged as {place}")
        elif places.get((place.protocol, place.queue, place.at)) != key:
            yield Violation(Broken.MOVED, f"{key}, acknowledged as {place}")


def _once(history: History) -> Iterator[Violation]:
    counts = Counter(stored.key for stored in _all_stored(history, Protocol.ROCKETMQ))
    for key, count in counts.items():
        if key is not None and count > 1:
            yield Violation(Broken.DUPLICATED, f"{key}, {count} times")


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
            if stored.key is None or stored.key not in history.attempted:
                yield Violation(
                    Broken.PHANTOM, f"{protocol.value} {queue} at {stored.at}: {stored.key}"
                )


def _stable(history: History) -> Iterator[Violation]:
    final = {
        where: {stored.at: stored.key for stored in messages}
        for where, messages in history.final.items()
    }
    for protocol, queue, stored in history.reads:
        now = final.get((protocol, queue), {}).get(stored.at)
        if now != stored.key:
            where = f"{protocol.value} {queue} at {stored.at}"
            yield Violation(Broken.UNSTABLE, f"{where}: first {stored.key}, in the end {now}")


def _complete(history: History) -> Iterator[Violation]:
    seen: dict[tuple[Protocol, Queue], set[int]] = {}
    for protocol, queue, stored in history.reads:
        seen.setdefault((protocol, queue), set()).add(stored.at)
    for (protocol, queue), messages in history.final.items():
        for stored in messages:
            if stored.at not in seen.get((protocol, queue), set()):
                where = f"{protocol.value} {queue} at {stored.at}"
                yield Violation(Broken.MISSED, f"{stored.key}, {where}")


def _progress(history: History) -> Iterator[Violation]:
    committed: dict[Queue, int] = {}
    tried: dict[Queue, int] = {}
    for each in history.progress:
        if each.step is Step.TRIED:
            tried[each.queue] = max(tried.get(each.queue, 0), each.offset)
            continue
        if each.offset < committed.get(each.queue, 0):
            yield Violation(
                Broken.REWOUND, f"{each.queue}: {committed[each.queue]}, later {each.offset}"
            )
        if each.offset > tried.get(each.queue, 0):
            yield Violation(Broken.INVENTED, f"{each.queue}: {each.offset}")
        # What the broker told once is a promise as well.
        committed[each.queue] = max(committed.get(each.queue, 0), each.offset)


def _agreed(history: History) -> Iterator[Violation]:
    for queue in sorted({queue for _, queue in history.final}):
        metaq = _keys(history, Protocol.METAQ, queue)
        rocketmq = _keys(history, Protocol.ROCKETMQ, queue)
        if metaq != rocketmq:
            pairs = enumerate(zip(metaq, rocketmq, strict=False))
            end = min(len(metaq), len(rocketmq))
            first = next((index for index, (one, other) in pairs if one != other), end)
            counts = f"{len(metaq)} and {len(rocketmq)} messages"
            yield Violation(Broken.DISAGREED, f"{queue}: {counts}, different from {first} on")


def _contiguous(history: History) -> Iterator[Violation]:
    for (protocol, queue), messages in history.final.items():
        places = [stored.at for stored in messages]
        if protocol is Protocol.ROCKETMQ and places != list(range(len(places))):
            yield Violation(Broken.GAP, f"{queue}: offsets are not 0 to {len(places) - 1}")
        if protocol is Protocol.METAQ and places != sorted(set(places)):
            yield Violation(Broken.GAP, f"{queue}: positions do not grow")


def _keys(history: History, protocol: Protocol, queue: Queue) -> list[Key | None]:
    return [stored.key for stored in history.final.get((protocol, queue), [])]


def _all_stored(history: History, protocol: Protocol) -> Iterator[Stored]:
    for (each, _), messages in history.final.items():
        if each is protocol:
            yield from messages
