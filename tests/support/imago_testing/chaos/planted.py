"""A history in which all goes well, for tests of the checker to plant broken promises in."""

from __future__ import annotations

from imago_testing.chaos.history import History, Key, Place, Progress, Protocol, Queue, Step, Stored

QUEUES = [Queue("t", 0), Queue("t", 1)]
PRODUCERS = 4
PER_QUEUE = 40
SIZE = 100
"""Bytes of a stored message to MetaQ."""


def good_history() -> History:
    """Two producers of each protocol write to two queues; all goes well."""
    history = History()
    numbers = dict.fromkeys(range(PRODUCERS), 0)
    for queue in QUEUES:
        for offset in range(PER_QUEUE):
            producer = offset % PRODUCERS
            key = Key(producer, numbers[producer])
            numbers[producer] += 1
            store(history, queue, offset, key)
    for queue in QUEUES:
        for offset in (10, 20, 40):
            for step in (Step.TRIED, Step.COMMITTED, Step.TOLD):
                history.progress.append(Progress(queue, step, offset))
    # Sent, never acknowledged, not stored: that is allowed.
    history.attempted[Key(0, 10_000)] = content_of(Key(0, 10_000))
    return history


def content_of(key: Key) -> int:
    return key.producer * 1_000_000 + key.number


def message(protocol: Protocol, queue: Queue, offset: int, key: Key) -> Stored:
    """A message as a reader sees it where nothing is wrong."""
    number = offset + QUEUES.index(queue) * 100_000
    if protocol is Protocol.METAQ:
        return Stored(offset * SIZE, key, number + 7_000_000, SIZE, content_of(key))
    return Stored(offset, key, number * 2 * SIZE, 1, content_of(key))


def store(history: History, queue: Queue, offset: int, key: Key) -> None:
    history.attempted[key] = content_of(key)
    for protocol in Protocol:
        stored = message(protocol, queue, offset, key)
        if protocol is (Protocol.METAQ if key.producer < 2 else Protocol.ROCKETMQ):
            history.acked[key] = Place(protocol, queue, stored.at, stored.id)
        history.final.setdefault((protocol, queue), []).append(stored)
        history.reads.append((protocol, queue, stored))
