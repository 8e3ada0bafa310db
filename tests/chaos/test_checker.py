"""The checker finds every kind of broken promise that is planted into a good history."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.chaos import payload
from imago_testing.chaos.checker import check
from imago_testing.chaos.history import Key, Progress, Protocol, Step
from imago_testing.chaos.planted import (
    PER_QUEUE,
    PRODUCERS,
    QUEUES,
    SIZE,
    content_of,
    good_history,
    message,
    store,
)
from imago_testing.chaos.violations import Broken

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.chaos.history import History, Queue


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
        put(history, protocol, 17, Key(0, 10_000))


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
        put(history, protocol, 8, other)
        put(history, protocol, 8 + PRODUCERS, one)


def store_at_another_place(history: History) -> None:
    key = Key(0, 0)
    place = history.acked[key]
    history.acked[key] = replace(place, at=place.at + SIZE)


def acknowledge_another_queue(history: History) -> None:
    key = Key(2, 3)
    place = history.acked[key]
    history.acked[key] = replace(place, queue=QUEUES[1])


def acknowledge_another_id(history: History) -> None:
    key = Key(1, 2)
    place = history.acked[key]
    history.acked[key] = replace(place, id=place.id + 1)


def give_an_id_twice(history: History) -> None:
    messages = history.final[Protocol.METAQ, QUEUES[0]]
    change(history, Protocol.METAQ, 20, id=messages[19].id)


def change_a_body(history: History) -> None:
    for protocol in Protocol:
        change(history, protocol, 9, content=5)


def show_metaq_another_body(history: History) -> None:
    change(history, Protocol.METAQ, 9, content=5)


def leave_a_hole_between_positions(history: History) -> None:
    change(history, Protocol.METAQ, 12, size=SIZE + 1)


def change_after_a_read(history: History) -> None:
    history.reads.append(
        (Protocol.ROCKETMQ, QUEUES[0], message(Protocol.ROCKETMQ, QUEUES[0], 3, Key(1, 5)))
    )


def read_what_is_gone(history: History) -> None:
    gone = message(Protocol.METAQ, QUEUES[0], PER_QUEUE, Key(0, 10_000))
    history.reads.append((Protocol.METAQ, QUEUES[0], gone))


def damage(history: History) -> None:
    for protocol in Protocol:
        change(history, protocol, 11, key=None)


def store_what_nobody_sent(history: History) -> None:
    key = Key(9, 1)
    store(history, QUEUES[0], PER_QUEUE, key)
    del history.attempted[key]
    del history.acked[key]


def hide_one_from_the_consumer(history: History) -> None:
    history.reads = [
        each for each in history.reads if (each[1], each[2].at) != (QUEUES[0], 7 * SIZE)
    ]


def send_a_consumer_away(history: History) -> None:
    history.astray.append((Protocol.METAQ, QUEUES[1], 3 * SIZE))


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
    put(history, Protocol.METAQ, 4, other, QUEUES[1])
    put(history, Protocol.METAQ, 5, one, QUEUES[1])


def skip_an_offset(history: History) -> None:
    messages = history.final[Protocol.ROCKETMQ, QUEUES[0]]
    messages[-1] = replace(messages[-1], at=PER_QUEUE)


def repeat_a_position(history: History) -> None:
    messages = history.final[Protocol.METAQ, QUEUES[0]]
    messages[-1] = replace(messages[-1], at=messages[-2].at)


def put(
    history: History, protocol: Protocol, index: int, key: Key | None, queue: Queue = QUEUES[0]
) -> None:
    """Put another message into a place, for the consumers too."""
    assert key is not None
    change(history, protocol, index, queue, key=key, content=content_of(key))


def change(
    history: History, protocol: Protocol, index: int, queue: Queue = QUEUES[0], **fields: Any
) -> None:
    """Change a stored message, for the consumers too."""
    messages = history.final[protocol, queue]
    before = messages[index]
    messages[index] = replace(before, **fields)
    history.reads = [
        (
            each,
            where,
            messages[index] if (each, where) == (protocol, queue) and read == before else read,
        )
        for each, where, read in history.reads
    ]


def lose_a_commit_without_a_crash(history: History) -> None:
    for step, offset in ((Step.TRIED, 60), (Step.COMMITTED, 60), (Step.TOLD, 40)):
        history.progress.append(Progress(QUEUES[0], step, offset))


def lose_a_told_commit_with_the_broker(history: History) -> None:
    for step, offset in ((Step.TRIED, 60), (Step.TOLD, 60), (Step.LOST, 0), (Step.TOLD, 59)):
        history.progress.append(Progress(QUEUES[0], step, offset))


ONLY_IN_A_SHARD = {
    Broken.EARLY,
    *(Broken.APART, Broken.UNLED, Broken.UNHEALED, Broken.UNNAMED, Broken.IDLE),
    Broken.INTRUDED,
    Broken.FORCED_OUT,
    Broken.AGAIN,
}
PLANTED: list[tuple[Callable[[History], None], Broken]] = [
    (lose_the_last, Broken.LOST),
    (lose_one_in_the_middle, Broken.LOST),
    (lose_a_whole_queue, Broken.LOST),
    (repeat_in_the_same_queue, Broken.DUPLICATED),
    (repeat_in_another_queue, Broken.DUPLICATED),
    (swap_two_of_one_producer, Broken.REORDERED),
    (store_at_another_place, Broken.MOVED),
    (acknowledge_another_queue, Broken.MOVED),
    (acknowledge_another_id, Broken.RENAMED),
    (give_an_id_twice, Broken.REUSED),
    (change_a_body, Broken.PHANTOM),
    (show_metaq_another_body, Broken.DISAGREED),
    (leave_a_hole_between_positions, Broken.GAP),
    (change_after_a_read, Broken.UNSTABLE),
    (read_what_is_gone, Broken.UNSTABLE),
    (damage, Broken.PHANTOM),
    (store_what_nobody_sent, Broken.PHANTOM),
    (hide_one_from_the_consumer, Broken.MISSED),
    (send_a_consumer_away, Broken.ASTRAY),
    (take_a_commit_back, Broken.REWOUND),
    (forget_all_commits, Broken.REWOUND),
    (acknowledge_an_older_commit_after_telling_a_newer, Broken.REWOUND),
    (lose_a_commit_without_a_crash, Broken.REWOUND),
    (lose_a_told_commit_with_the_broker, Broken.REWOUND),
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


def test_commit_that_nobody_was_told_of_may_be_lost_with_the_broker() -> None:
    history = good_history()
    for step, offset in ((Step.TRIED, 60), (Step.COMMITTED, 60), (Step.LOST, 0), (Step.TOLD, 40)):
        history.progress.append(Progress(QUEUES[0], step, offset))
    assert check(history) == []


def test_every_kind_of_violation_is_planted() -> None:
    assert {broken for _, broken in PLANTED} == set(Broken) - ONLY_IN_A_SHARD


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
