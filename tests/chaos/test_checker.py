"""The checker finds every kind of broken promise that is planted into a good history."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from imago_testing.chaos import payload
from imago_testing.chaos.checker import Broken, check
from imago_testing.chaos.history import History, Key, Place, Progress, Protocol, Queue, Step, Stored

if TYPE_CHECKING:
    from collections.abc import Callable

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
            for step in Step:
                history.progress.append(Progress(queue, step, offset))
    # Sent, never acknowledged, not stored: that is allowed.
    history.attempted.add(Key(0, 10_000))
    return history


def store(history: History, queue: Queue, offset: int, key: Key) -> None:
    history.attempted.add(key)
    protocol = Protocol.METAQ if key.producer < 2 else Protocol.ROCKETMQ
    places = {Protocol.METAQ: offset * SIZE, Protocol.ROCKETMQ: offset}
    history.acked[key] = Place(protocol, queue, places[protocol])
    for each, at in places.items():
        history.final.setdefault((each, queue), []).append(Stored(at, key))
        history.reads.append((each, queue, Stored(at, key)))


def test_good_history_breaks_no_promise() -> None:
    assert check(good_history()) == []


def test_unacknowledged_message_may_be_stored_once() -> None:
    history = good_history()
    key = Key(3, 9_000)
    store(history, QUEUES[0], PER_QUEUE, key)
    del history.acked[key]
    assert check(history) == []


def lose_the_last(history: History) -> None:
    keys = {history.final[protocol, QUEUES[0]].pop().key for protocol in Protocol}
    history.reads = [each for each in history.reads if each[2].key not in keys]


def lose_one_in_the_middle(history: History) -> None:
    for protocol in Protocol:
        replace(history, protocol, 17, Key(0, 10_000))


def lose_a_whole_queue(history: History) -> None:
    for protocol in Protocol:
        del history.final[protocol, QUEUES[1]]
    history.reads = [each for each in history.reads if each[1] != QUEUES[1]]


def repeat_in_the_same_queue(history: History) -> None:
    first = history.final[Protocol.ROCKETMQ, QUEUES[0]][5].key
    assert first is not None
    place = history.acked[first]
    store(history, QUEUES[0], PER_QUEUE, first)
    history.acked[first] = place


def repeat_in_another_queue(history: History) -> None:
    first = history.final[Protocol.ROCKETMQ, QUEUES[0]][5].key
    assert first is not None
    place = history.acked[first]
    store(history, QUEUES[1], PER_QUEUE, first)
    history.acked[first] = place


def swap_two_of_one_producer(history: History) -> None:
    for protocol in Protocol:
        messages = history.final[protocol, QUEUES[0]]
        one, other = messages[8].key, messages[8 + PRODUCERS].key
        replace(history, protocol, 8, other)
        replace(history, protocol, 8 + PRODUCERS, one)


def store_at_another_place(history: History) -> None:
    key = Key(0, 0)
    place = history.acked[key]
    history.acked[key] = Place(place.protocol, place.queue, place.at + SIZE)


def acknowledge_another_queue(history: History) -> None:
    key = Key(2, 3)
    place = history.acked[key]
    history.acked[key] = Place(place.protocol, QUEUES[1], place.at)


def change_after_a_read(history: History) -> None:
    history.reads.append((Protocol.ROCKETMQ, QUEUES[0], Stored(3, Key(1, 5))))


def read_what_is_gone(history: History) -> None:
    history.reads.append((Protocol.METAQ, QUEUES[0], Stored(PER_QUEUE * SIZE, Key(0, 10_000))))


def damage(history: History) -> None:
    for protocol in Protocol:
        replace(history, protocol, 11, None)


def store_what_nobody_sent(history: History) -> None:
    key = Key(9, 1)
    store(history, QUEUES[0], PER_QUEUE, key)
    history.attempted.remove(key)
    del history.acked[key]


def hide_one_from_the_consumer(history: History) -> None:
    history.reads = [
        each for each in history.reads if (each[1], each[2].at) != (QUEUES[0], 7 * SIZE)
    ]


def take_a_commit_back(history: History) -> None:
    history.progress.append(Progress(QUEUES[0], Step.TOLD, 39))


def forget_all_commits(history: History) -> None:
    history.progress.append(Progress(QUEUES[1], Step.TOLD, 0))


def acknowledge_an_older_commit_after_telling_a_newer(history: History) -> None:
    history.progress.append(Progress(QUEUES[0], Step.TRIED, 50))
    history.progress.append(Progress(QUEUES[0], Step.TOLD, 50))
    history.progress.append(Progress(QUEUES[0], Step.COMMITTED, 45))


def tell_what_nobody_committed(history: History) -> None:
    history.progress.append(Progress(QUEUES[0], Step.TOLD, 41))


def show_metaq_less(history: History) -> None:
    history.final[Protocol.METAQ, QUEUES[1]].pop()


def show_metaq_another_order(history: History) -> None:
    messages = history.final[Protocol.METAQ, QUEUES[1]]
    one, other = messages[4].key, messages[5].key
    replace(history, Protocol.METAQ, 4, other, QUEUES[1])
    replace(history, Protocol.METAQ, 5, one, QUEUES[1])


def skip_an_offset(history: History) -> None:
    messages = history.final[Protocol.ROCKETMQ, QUEUES[0]]
    messages[-1] = Stored(PER_QUEUE, messages[-1].key)


def repeat_a_position(history: History) -> None:
    messages = history.final[Protocol.METAQ, QUEUES[0]]
    messages[-1] = Stored(messages[-2].at, messages[-1].key)


def replace(
    history: History, protocol: Protocol, index: int, key: Key | None, queue: Queue = QUEUES[0]
) -> None:
    """Put another message into a place, for the consumers too."""
    messages = history.final[protocol, queue]
    messages[index] = Stored(messages[index].at, key)
    for at, (each, where, stored) in enumerate(history.reads):
        if (each, where, stored.at) == (protocol, queue, messages[index].at):
            history.reads[at] = (each, where, Stored(stored.at, key))


PLANTED: list[tuple[Callable[[History], None], Broken]] = [
    (lose_the_last, Broken.LOST),
    (lose_one_in_the_middle, Broken.LOST),
    (lose_a_whole_queue, Broken.LOST),
    (repeat_in_the_same_queue, Broken.DUPLICATED),
    (repeat_in_another_queue, Broken.DUPLICATED),
    (swap_two_of_one_producer, Broken.REORDERED),
    (store_at_another_place, Broken.MOVED),
    (acknowledge_another_queue, Broken.MOVED),
    (change_after_a_read, Broken.UNSTABLE),
    (read_what_is_gone, Broken.UNSTABLE),
    (damage, Broken.PHANTOM),
    (store_what_nobody_sent, Broken.PHANTOM),
    (hide_one_from_the_consumer, Broken.MISSED),
    (take_a_commit_back, Broken.REWOUND),
    (forget_all_commits, Broken.REWOUND),
    (acknowledge_an_older_commit_after_telling_a_newer, Broken.REWOUND),
    (tell_what_nobody_committed, Broken.INVENTED),
    (show_metaq_less, Broken.DISAGREED),
    (show_metaq_another_order, Broken.DISAGREED),
    (skip_an_offset, Broken.GAP),
    (repeat_a_position, Broken.GAP),
]


@pytest.mark.parametrize(("plant", "broken"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_planted_violation_is_found(plant: Callable[[History], None], broken: Broken) -> None:
    history = good_history()
    plant(history)
    assert broken in {each.broken for each in check(history)}


def test_every_kind_of_violation_is_planted() -> None:
    assert {broken for _, broken in PLANTED} == set(Broken)


def test_payload_names_its_message() -> None:
    rng = random.Random(1)
    for number in range(50):
        assert payload.decode(payload.encode(Key(7, number), rng)) == Key(7, number)


def test_damaged_payload_is_told() -> None:
    body = payload.encode(Key(7, 1), random.Random(2))
    for at in (0, 5, 10, 13, 17, len(body) - 1):
        damaged = bytearray(body)
        damaged[at] ^= 1
        assert payload.decode(bytes(damaged)) is None
    assert payload.decode(body[:-1]) is None
    assert payload.decode(b"") is None
