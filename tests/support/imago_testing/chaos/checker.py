"""Compare a history with what was promised. Pure: a history in, broken promises out.

Promises: an acknowledged message is there, once, where it was said to be; messages of one
producer keep their order in a queue; a place never shows another message than it once did;
places follow each other without a hole; ids are unique; nothing appears that nobody sent; a light
queue has the messages that name it, each once, in the order of the log; a consumer misses nothing;
a committed offset never goes back once it was told; both protocols show the same messages, byte for
byte, in the same order. In a shard all this is so on every member once it leads, but for messages
that have expired, and for damage that it names by file and byte and that no other member can put
right; and once nobody disturbs it, it is soon whole again. No disk is too full for what a group
has not read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from imago_testing.chaos.drained import check_drained
from imago_testing.chaos.history import Ending, Protocol, Step
from imago_testing.chaos.violations import Broken, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_testing.chaos.history import History, Key, Progress, Queue, Stored


_REFERENCES_BYTES_MAX = 512
"""In front of a message: a record of some 180 bytes for each of two light queues at most."""


def check(history: History) -> list[Violation]:
    """Return every broken promise of a run."""
    found = [
        *(Violation(Broken.APART, each) for each in history.apart),
        *(Violation(Broken.UNLED, each) for each in history.unled),
        *(Violation(Broken.IDLE, each) for each in history.idle),
        *(Violation(Broken.FORCED_OUT, each) for each in history.forced_out),
        *(Violation(Broken.INTRUDED, each) for each in history.intruded),
        *(Violation(Broken.LOST, each) for each in history.sdk_lost),
        *(Violation(Broken.AGAIN, each) for each in history.sdk_again),
        *_gone_on(history),
        *_progress(history),
        *_healed(history),
        *(each for drained in history.drains for each in check_drained(drained)),
    ]
    places = _log_offsets(history)
    endings = history.endings
    if not endings and not history.apart and not history.unled:  # else nobody could be read
        endings = [Ending("", history.final)]
    for ending in endings:
        found += _check_ending(_View(history, ending, places))
    return found


def _check_ending(view: _View) -> Iterator[Violation]:
    of = f"{view.ending.member}: " if view.ending.member else ""
    for rule in (
        _acknowledged,
        _once,
        _named_once,
        _in_order,
        _sent_by_somebody,
        _stable,
        _complete,
        _agreed,
        _contiguous,
        _light,
    ):
        yield from (replace(each, text=of + each.text) for each in rule(view))


class _View:
    """What one member showed in the end, and what it may lack: it has expired, or is told."""

    def __init__(self, history: History, ending: Ending, log_offsets: Mapping[Key, int]) -> None:
        self.history, self.ending, self._log_offsets = history, ending, log_offsets
        self.messages = {  # of what expired while it was read, a part may have been seen
            where: [stored for stored in found if not self.expired(stored.key)]
            for where, found in ending.messages.items()
        }
        self.light = {
            name: [stored for stored in found if not self.expired(stored.key)]
            for name, found in ending.light.items()
        }
        self._holes = [hole for hole in ending.holes if hole.named]

    def stored(self, protocol: Protocol) -> Iterator[Stored]:
        for (each, _), messages in self.messages.items():
            if each is protocol:
                yield from messages

    def expired(self, key: Key | None) -> bool:
        return self._offset(key, self.ending.log_start) < self.ending.log_start

    def may_lack_references(self, key: Key | None) -> bool:
        """Whether what stands in front of a message may be damaged."""
        at = self._offset(key, -1)
        return any(0 <= at - hole.end < _REFERENCES_BYTES_MAX for hole in self._holes)

    def in_hole(self, key: Key | None) -> bool:
        at = self._offset(key, -1)
        return any(hole.start <= at < hole.end for hole in self._holes)

    def may_lack(self, key: Key | None) -> bool:
        return self.expired(key) or self.in_hole(key)

    def may_jump(self, before: Stored | None, behind: Stored) -> bool:
        """Whether messages may be missing between two that follow one another in a queue."""
        low = self._offset(before.key, 0) if before else 0
        high = self._offset(behind.key, 0)
        return low < self.ending.log_start <= high or any(
            hole.start < high and hole.end > low for hole in self._holes
        )

    def _offset(self, key: Key | None, unknown: int) -> int:
        return unknown if key is None else self._log_offsets.get(key, unknown)


def _log_offsets(history: History) -> dict[Key, int]:
    """Return where in the log each message is, as RocketMQ's ids say."""
    found = {
        key: place.id for key, place in history.acked.items() if place.protocol is Protocol.ROCKETMQ
    }
    seen = [stored for protocol, _, stored in history.reads if protocol is Protocol.ROCKETMQ]
    for ending in history.endings:
        for (protocol, _), messages in ending.messages.items():
            seen += messages if protocol is Protocol.ROCKETMQ else []
    found.update((stored.key, stored.id) for stored in seen if stored.key is not None)
    return found


def _healed(history: History) -> Iterator[Violation]:
    """What is damaged on one member and whole on another has to be put back."""
    for ending in history.endings:
        for hole in ending.holes:
            if not hole.named:
                yield Violation(Broken.UNNAMED, f"{ending.member}: {hole}")
            whole = [
                other.member
                for other in history.endings
                if other.log_start <= hole.start
                and not any(each.start < hole.end and hole.start < each.end for each in other.holes)
            ]
            if whole:
                text = f"{ending.member}: {hole}, whole on {', '.join(whole)}"
                yield Violation(Broken.UNHEALED, text)


def _acknowledged(view: _View) -> Iterator[Violation]:
    there = {stored.key for stored in view.stored(Protocol.ROCKETMQ)}
    seen = {protocol: {each.key for each in _reads(view, protocol)} for protocol in Protocol}
    places = {
        (protocol, queue, stored.at): stored
        for (protocol, queue), messages in view.messages.items()
        for stored in messages
    }
    for key, place in view.history.acked.items():
        found = places.get((place.protocol, place.queue, place.at))
        if key not in there and view.expired(key):
            if not all(key in keys for keys in seen.values()):
                yield Violation(Broken.MISSED, f"{key}, expired, acknowledged as {place}")
        elif key not in there and view.in_hole(key):
            pass
        elif key not in there:
            yield Violation(Broken.LOST, f"{key}, acknowledged as {place}")
        elif found is None or found.key != key:
            yield Violation(Broken.MOVED, f"{key}, acknowledged as {place}")
        elif found.id != place.id:
            yield Violation(Broken.RENAMED, f"{key}: {place.id} at first, {found.id} now")


def _reads(view: _View, protocol: Protocol) -> Iterator[Stored]:
    return (stored for each, _, stored in view.history.reads if each is protocol)


def _once(view: _View) -> Iterator[Violation]:
    counts = Counter(stored.key for stored in view.stored(Protocol.ROCKETMQ))
    for key, count in counts.items():
        if key is not None and count > 1:
            yield Violation(Broken.DUPLICATED, f"{key}, {count} times")


def _named_once(view: _View) -> Iterator[Violation]:
    for protocol in Protocol:
        counts = Counter(stored.id for stored in view.stored(protocol))
        for message_id, count in counts.items():
            if count > 1:
                yield Violation(
                    Broken.REUSED, f"{protocol.value} id {message_id} of {count} messages"
                )


def _in_order(view: _View) -> Iterator[Violation]:
    for (protocol, queue), messages in view.messages.items():
        last: dict[int, int] = {}
        for stored in messages:
            if stored.key is None:
                continue
            before = last.get(stored.key.producer, -1)
            if stored.key.number < before:
                where = f"{protocol.value} {queue} at {stored.at}"
                yield Violation(Broken.REORDERED, f"{stored.key} behind number {before}, {where}")
            last[stored.key.producer] = stored.key.number


def _sent_by_somebody(view: _View) -> Iterator[Violation]:
    for (protocol, queue), messages in view.messages.items():
        for stored in messages:
            sent = None if stored.key is None else view.history.attempted.get(stored.key)
            if sent != stored.content:
                where = f"{protocol.value} {queue} at {stored.at}"
                yield Violation(Broken.PHANTOM, f"{where}: {stored.key}")


def _stable(view: _View) -> Iterator[Violation]:
    final = {
        where: {stored.at: stored for stored in messages}
        for where, messages in view.messages.items()
    }
    for protocol, queue, stored in view.history.reads:
        now = final.get((protocol, queue), {}).get(stored.at)
        if now != stored and not (now is None and view.may_lack(stored.key)):
            where = f"{protocol.value} {queue} at {stored.at}"
            yield Violation(Broken.UNSTABLE, f"{where}: first {stored}, in the end {now}")


def _complete(view: _View) -> Iterator[Violation]:
    if view.history.apart:
        return  # the run was broken off before consumers had read all
    seen: dict[tuple[Protocol, Queue], set[int]] = {}
    for protocol, queue, stored in view.history.reads:
        seen.setdefault((protocol, queue), set()).add(stored.at)
    for (protocol, queue), messages in view.messages.items():
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


def _agreed(view: _View) -> Iterator[Violation]:
    for queue in sorted({queue for _, queue in view.messages}):
        metaq = _messages(view, Protocol.METAQ, queue)
        rocketmq = _messages(view, Protocol.ROCKETMQ, queue)
        if metaq != rocketmq:
            pairs = enumerate(zip(metaq, rocketmq, strict=False))
            end = min(len(metaq), len(rocketmq))
            first = next((index for index, (one, other) in pairs if one != other), end)
            counts = f"{len(metaq)} and {len(rocketmq)} messages"
            yield Violation(Broken.DISAGREED, f"{queue}: {counts}, different from {first} on")


def _contiguous(view: _View) -> Iterator[Violation]:
    for (protocol, queue), messages in view.messages.items():
        yield from _gaps(view, f"{protocol.value} {queue}", messages)


def _gaps(view: _View, where: str, messages: list[Stored]) -> Iterator[Violation]:
    expected, before = 0, None
    for stored in messages:
        forward = stored.at > expected and view.may_jump(before, stored)
        if stored.at != expected and not forward:
            yield Violation(Broken.GAP, f"{where}: at {stored.at} instead of {expected}")
        expected, before = stored.at + stored.size, stored


def _light(view: _View) -> Iterator[Violation]:
    for name, messages in view.light.items():
        yield from _gaps(view, name, messages)
        yield from _named_and_there(view, name, messages)
        for before, stored in pairwise(messages):
            if stored.id <= before.id:
                yield Violation(Broken.REORDERED, f"{stored.key} behind {before.key} in {name}")
        for stored in messages:
            if stored.key is None or view.history.attempted.get(stored.key) != stored.content:
                yield Violation(Broken.PHANTOM, f"{name} at {stored.at}: {stored.key}")


def _named_and_there(view: _View, name: str, messages: list[Stored]) -> Iterator[Violation]:
    """A light queue has what names it of the messages that are in their topics, and no other."""
    named = {key for key, names in view.history.light.items() if name in names}
    stored = {stored.key for stored in view.stored(Protocol.ROCKETMQ)}
    found = Counter(stored.key for stored in messages)
    for key in named & stored - found.keys():
        if not view.may_lack_references(key):
            yield Violation(Broken.LOST, f"{key}, which names {name}")
    for shown, count in found.items():
        if shown not in named & stored:
            yield Violation(Broken.PHANTOM, f"{shown} in {name}")
        if count > 1:
            yield Violation(Broken.DUPLICATED, f"{shown}, {count} times in {name}")


def _messages(view: _View, protocol: Protocol, queue: Queue) -> list[tuple[Key | None, int]]:
    # MetaQ's own files may hold what is damaged in the log.
    messages = view.messages.get((protocol, queue), [])
    return [(each.key, each.content) for each in messages if not view.in_hole(each.key)]
