"""The checker finds what is wrong with a light queue of one member of a shard."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_testing.chaos.checker import check
from imago_testing.chaos.history import Ending, Hole, Key, Protocol
from imago_testing.chaos.planted import QUEUES, content_of, good_history
from imago_testing.chaos.violations import Broken

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.chaos.history import History, Stored

NAME, PRODUCER = "%LMQ%chaos-2", 2


def light_history() -> History:
    """Two members have shown all messages; those of one producer in one queue name a light one."""
    history = good_history()
    chosen = [
        each
        for each in history.final[Protocol.ROCKETMQ, QUEUES[0]]
        if each.key is not None and each.key.producer == PRODUCER
    ]
    history.light = {each.key: (NAME,) for each in chosen if each.key is not None}
    for member in ("b0", "b1"):
        messages = {where: list(found) for where, found in history.final.items()}
        shown = [replace(each, at=at) for at, each in enumerate(chosen)]
        history.endings.append(Ending(member, messages, light={NAME: shown}))
    history.final.clear()
    return history


def shown_by_one(history: History) -> list[Stored]:
    return history.endings[1].light[NAME]


def moved_up(messages: list[Stored]) -> list[Stored]:
    return [replace(each, at=at) for at, each in enumerate(messages)]


def lose_the_last(history: History) -> None:
    shown_by_one(history).pop()


def lose_one_and_move_up(history: History) -> None:
    shown = shown_by_one(history)
    del shown[3]
    shown[:] = moved_up(shown)


def lose_all(history: History) -> None:
    shown_by_one(history).clear()


def leave_a_hole(history: History) -> None:
    del shown_by_one(history)[3]


def number_one_twice(history: History) -> None:
    shown = shown_by_one(history)
    shown[4] = replace(shown[4], at=3)


def repeat(history: History) -> None:
    shown = shown_by_one(history)
    shown.append(replace(shown[2], at=len(shown)))


def swap_two(history: History) -> None:
    shown = shown_by_one(history)
    shown[3], shown[4] = shown[4], shown[3]
    shown[:] = moved_up(shown)


def show_what_names_another(history: History) -> None:
    shown = shown_by_one(history)
    assert shown[-1].key is not None
    history.light[shown[-1].key] = ("%LMQ%chaos-3",)


def show_what_was_never_stored(history: History) -> None:
    shown, key = shown_by_one(history), Key(0, 10_000)
    history.light[key] = (NAME,)
    last = shown[-1]
    shown.append(replace(last, at=len(shown), id=last.id + 1, key=key, content=content_of(key)))


def show_other_content(history: History) -> None:
    shown = shown_by_one(history)
    shown[3] = replace(shown[3], content=1)


def show_damage(history: History) -> None:
    shown = shown_by_one(history)
    shown[3] = replace(shown[3], key=None)


PLANTED: list[tuple[Callable[[History], None], Broken]] = [
    (lose_the_last, Broken.LOST),
    (lose_one_and_move_up, Broken.LOST),
    (lose_all, Broken.LOST),
    (leave_a_hole, Broken.GAP),
    (number_one_twice, Broken.GAP),
    (repeat, Broken.DUPLICATED),
    (swap_two, Broken.REORDERED),
    (show_what_names_another, Broken.PHANTOM),
    (show_what_was_never_stored, Broken.PHANTOM),
    (show_other_content, Broken.PHANTOM),
    (show_damage, Broken.PHANTOM),
]


def test_light_queues_with_everything_break_no_promise() -> None:
    assert check(light_history()) == []


def test_what_expires_may_be_missing_at_the_front() -> None:
    history = light_history()
    for ending in history.endings:
        ending.log_start = ending.light[NAME][2].id
        del ending.light[NAME][:2]
        for messages in ending.messages.values():
            messages[:] = [each for each in messages if each.at >= 10 or each.id > 6_000_000]
    assert [each for each in check(history) if NAME in each.text] == []


def test_what_refers_to_the_first_message_of_the_log_goes_with_it() -> None:
    history = light_history()
    for ending in history.endings:
        ending.log_start = ending.light[NAME][2].id
        del ending.light[NAME][:3]
    lost = [each.broken for each in check(history) if NAME in each.text]
    assert lost == [Broken.LOST] * len(history.endings)


def test_what_refers_to_a_message_may_be_damaged_in_front_of_it() -> None:
    history = light_history()
    for ending in history.endings:
        at = ending.light[NAME][2].id
        ending.holes.append(Hole(at - 150, at, "log/0", 7))
        del ending.light[NAME][2]
    assert check(history) == []
    for ending in history.endings:
        del ending.light[NAME][2]  # the next one is not right behind the damage
    assert {each.broken for each in check(history)} == {Broken.LOST}


@pytest.mark.parametrize(("plant", "broken"), PLANTED)
def test_planted_violation_of_a_light_queue_is_found(
    plant: Callable[[History], None], broken: Broken
) -> None:
    history = light_history()
    plant(history)
    assert broken in {each.broken for each in check(history)}
