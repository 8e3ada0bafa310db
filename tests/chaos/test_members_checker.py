"""The checker finds what is wrong on one member of a shard, and what it may lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.chaos.checker import check
from imago_testing.chaos.history import Ending, Hole, Key, Protocol
from imago_testing.chaos.planted import PER_QUEUE, PRODUCERS, QUEUES, SIZE, good_history, message
from imago_testing.chaos.violations import Broken

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.chaos.history import History, Queue

MEMBERS = ["b0", "b1", "b2"]
LOG_BYTES = 1 << 40
"""Behind every message."""


def shard_history() -> History:
    """The same messages in a shard: each member has shown all of them as leader."""
    history = good_history()
    for member in MEMBERS:
        messages = {where: list(found) for where, found in history.final.items()}
        history.endings.append(Ending(member, messages))
    history.final.clear()
    return history


def log_offset(queue: Queue, offset: int) -> int:
    return message(Protocol.ROCKETMQ, queue, offset, Key(0, 0)).id


def take_from(ending: Ending, start: int, end: int, queue: Queue = QUEUES[0]) -> None:
    """Have a member show a queue without these messages, and with the others at their places."""
    for protocol in Protocol:
        del ending.messages[protocol, queue][start:end]


def hole_over(start: int, end: int, *, file: str = "log/0", position: int = 7) -> Hole:
    return Hole(log_offset(QUEUES[0], start), log_offset(QUEUES[0], end), file, position)


def lose_one_on_one_member(history: History) -> None:
    take_from(history.endings[2], 17, 18)


def lose_the_last_on_one_member(history: History) -> None:
    take_from(history.endings[1], PER_QUEUE - 1, PER_QUEUE)


def lose_one_on_every_member(history: History) -> None:
    for ending in history.endings:
        take_from(ending, 17, 18)


def name_another_hole(history: History) -> None:
    for ending in history.endings:
        take_from(ending, 17, 18)
        ending.holes.append(hole_over(18, 20))


def name_a_hole_without_a_file(history: History) -> None:
    for ending in history.endings:
        take_from(ending, 17, 18)
        ending.holes.append(hole_over(17, 18, file=""))


def name_a_hole_on_another_member(history: History) -> None:
    take_from(history.endings[0], 17, 18)
    history.endings[1].holes.append(hole_over(17, 18))


def name_a_hole_in_another_queue(history: History) -> None:
    for ending in history.endings:
        take_from(ending, 17, 18, QUEUES[1])
        ending.holes.append(hole_over(17, 18))


def keep_a_hole_that_others_can_fill(history: History) -> None:
    take_from(history.endings[1], 17, 18)
    history.endings[1].holes.append(hole_over(17, 18))


def keep_a_hole_that_hides_nothing(history: History) -> None:
    history.endings[1].holes.append(Hole(LOG_BYTES, LOG_BYTES + 1, "log/0", 7))


def repeat_on_one_member(history: History) -> None:
    messages = history.endings[1].messages
    for protocol in Protocol:
        first = messages[protocol, QUEUES[0]][5].key
        assert first is not None
        messages[protocol, QUEUES[0]].append(message(protocol, QUEUES[0], PER_QUEUE, first))


def swap_on_one_member(history: History) -> None:
    for protocol in Protocol:
        messages = history.endings[2].messages[protocol, QUEUES[0]]
        one, other = messages[8].key, messages[8 + PRODUCERS].key
        assert one is not None
        assert other is not None
        messages[8] = message(protocol, QUEUES[0], 8, other)
        messages[8 + PRODUCERS] = message(protocol, QUEUES[0], 8 + PRODUCERS, one)


def show_metaq_less_on_one_member(history: History) -> None:
    history.endings[0].messages[Protocol.METAQ, QUEUES[1]].pop()


def expire(history: History, count: int) -> None:
    """The first messages of the first queue go by retention, on every member."""
    for ending in history.endings:
        ending.log_start = log_offset(QUEUES[0], count)
        take_from(ending, 0, count)


def expire_what_a_consumer_never_saw(history: History) -> None:
    expire(history, 10)
    history.reads = [
        each for each in history.reads if (each[1], each[2].at) != (QUEUES[0], 7 * SIZE)
    ]


def expire_more_than_is_said(history: History) -> None:
    expire(history, 10)
    take_from(history.endings[1], 0, 1)


def leave_a_member_behind(history: History) -> None:
    history.apart.append("in the end: b2 is not in sync")


def leave_a_member_that_cannot_lead(history: History) -> None:
    history.unled.append("b2: 409")


def have_a_full_disk_take_unread_messages(history: History) -> None:
    history.forced_out.append("b1: 12 messages")


def do_nothing_as_a_fault(history: History) -> None:
    history.idle.append("b1 garble_metaq: no file in metaq")


def serve_who_has_no_right(history: History) -> None:
    history.intruded.append("who signs nothing: 10000/3 was acknowledged")


def lose_one_sent_over_grpc(history: History) -> None:
    history.sdk_lost.append("00000001 of chaos-0-sdk")


def bring_one_again_over_grpc(history: History) -> None:
    history.sdk_again.append("00000001 of chaos-0-sdk")


PLANTED: list[tuple[Callable[[History], None], Broken]] = [
    (have_a_full_disk_take_unread_messages, Broken.FORCED_OUT),
    (do_nothing_as_a_fault, Broken.IDLE),
    (serve_who_has_no_right, Broken.INTRUDED),
    (lose_one_sent_over_grpc, Broken.LOST),
    (bring_one_again_over_grpc, Broken.AGAIN),
    (lose_one_on_one_member, Broken.LOST),
    (lose_the_last_on_one_member, Broken.LOST),
    (lose_one_on_every_member, Broken.LOST),
    (name_another_hole, Broken.LOST),
    (name_a_hole_without_a_file, Broken.LOST),
    (name_a_hole_without_a_file, Broken.UNNAMED),
    (name_a_hole_on_another_member, Broken.LOST),
    (name_a_hole_in_another_queue, Broken.LOST),
    (keep_a_hole_that_others_can_fill, Broken.UNHEALED),
    (keep_a_hole_that_hides_nothing, Broken.UNHEALED),
    (repeat_on_one_member, Broken.DUPLICATED),
    (swap_on_one_member, Broken.REORDERED),
    (show_metaq_less_on_one_member, Broken.DISAGREED),
    (expire_what_a_consumer_never_saw, Broken.MISSED),
    (expire_more_than_is_said, Broken.LOST),
    (leave_a_member_behind, Broken.APART),
    (leave_a_member_that_cannot_lead, Broken.UNLED),
]


@pytest.mark.parametrize(("plant", "broken"), PLANTED)
def test_planted_violation_on_a_member_is_found(
    plant: Callable[[History], None], broken: Broken
) -> None:
    history = shard_history()
    plant(history)
    assert broken in {each.broken for each in check(history)}


def test_every_violation_on_one_member_names_it() -> None:
    history = shard_history()
    lose_one_on_one_member(history)
    found = check(history)
    assert found
    assert all(each.text.startswith("b2: ") for each in found)


def test_members_that_show_everything_break_no_promise() -> None:
    assert check(shard_history()) == []


def test_what_is_damaged_everywhere_may_be_missing_where_that_is_told() -> None:
    history = shard_history()
    for ending in history.endings:
        take_from(ending, 17, 19)
        ending.holes.append(hole_over(17, 19))
    assert check(history) == []


def test_metaq_may_show_out_of_its_own_files_what_is_damaged_in_the_log() -> None:
    history = shard_history()
    for ending in history.endings:
        del ending.messages[Protocol.ROCKETMQ, QUEUES[0]][17:19]
        ending.holes.append(hole_over(17, 19))
    assert check(history) == []


def test_what_consumers_saw_may_expire() -> None:
    history = shard_history()
    expire(history, 10)
    assert check(history) == []


def test_messages_may_expire_between_the_reads_of_two_protocols() -> None:
    history = shard_history()
    expire(history, 10)
    shown = history.endings[0].messages[Protocol.METAQ, QUEUES[0]]
    for offset in reversed(range(5, 10)):
        key = Key(offset % PRODUCERS, offset // PRODUCERS)
        shown.insert(0, message(Protocol.METAQ, QUEUES[0], offset, key))
    assert check(history) == []
