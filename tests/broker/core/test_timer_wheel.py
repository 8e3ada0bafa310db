"""The wheel of timers and the records of what has fired, as values."""

from __future__ import annotations

from random import Random

import pytest

from imago_broker.core.timers.timer_record import Firing, decode_firing, done_places, firing_body
from imago_broker.core.timers.timer_wheel import QUEUES_MAX, Timer, TimerRun, TimerWheel
from imago_testing.searching import examples
from imago_wire.record_format.layout import UNIT, WAITING_PLACE


def taken(wheel: TimerWheel, now_ms: int, count_max: int) -> list[Timer]:
    found: list[Timer] = []
    for run in wheel.take_due(now_ms, count_max):
        timers = list(run.timers())
        assert [timer.offset for timer in timers] == [run.first + n for n in range(run.length)]
        assert {timer.queue_id for timer in timers} == {run.queue_id}
        late = [now_ms - timer.due_ms for timer in timers]
        assert run.late_ms(now_ms) == (sum(late), late[0])
        assert list(run.head(1).timers()) == timers[:1]
        assert run.head(1) == TimerRun.of(timers[0])
        found += timers
    return found


def drained(wheel: TimerWheel, now_ms: int, at_once: int = 2) -> list[Timer]:
    found: list[Timer] = []
    while timers := taken(wheel, now_ms, at_once):
        assert len(timers) <= at_once
        found += timers
    return found


def test_timers_come_in_the_order_of_their_time_and_place() -> None:
    wheel = TimerWheel()
    timers = [Timer(1999, 3, 9), Timer(1000, 3, 10), Timer(1000, 2, 5), Timer(5000, 0, 0)]
    for timer in timers:
        wheel.add(timer)
    assert len(wheel) == 4
    assert wheel.next_ms == 1000
    assert wheel.take_due(999, 5) == []
    assert drained(wheel, 4999) == [timers[2], timers[1], timers[0]]
    assert (len(wheel), wheel.next_ms) == (1, 5000)


def test_an_earlier_second_comes_before_the_one_that_has_begun() -> None:
    wheel = TimerWheel()
    for offset in range(3):
        wheel.add(Timer(9000 + offset, 1, offset))
    assert taken(wheel, 9000, 5) == [Timer(9000, 1, 0)]
    wheel.add(Timer(8500, 1, 7))
    wheel.add(Timer(9001, 1, 8))
    assert [timer.offset for timer in drained(wheel, 10_000)] == [7, 1, 8, 2]
    assert wheel.next_ms is None


def test_the_largest_numbers_fit() -> None:
    wheel, timer = TimerWheel(), Timer(1_800_000_000_999, QUEUES_MAX - 1, (1 << 43) - 1)
    wheel.add(timer)
    assert taken(wheel, timer.due_ms, 5) == [timer]


@pytest.mark.parametrize("seed", range(examples(200)))
def test_every_timer_comes_once_and_never_early(seed: int) -> None:
    rng = Random(seed)
    wheel, waiting, now_ms = TimerWheel(), set[Timer](), 50_000
    for offset in range(rng.randint(1, 200)):
        timer = Timer(max(0, now_ms + rng.randint(-3000, 9000)), rng.randrange(3), offset)
        wheel.add(timer)
        waiting.add(timer)
        if rng.random() < 0.3:
            now_ms += rng.randint(0, 2500)
            due = sorted(each for each in waiting if each.due_ms <= now_ms)
            assert drained(wheel, now_ms, rng.choice([1, 3, 1000])) == due
            waiting.difference_update(due)
        assert wheel.next_ms == min((each.due_ms for each in waiting), default=None)
        assert len(wheel) == len(waiting)


def encode_firing(firing: Firing) -> bytes:
    fired, dropped = (
        b"".join([WAITING_PLACE.pack(*place) for place in places])
        for places in (firing.fired, firing.dropped)
    )
    return firing_body(fired, dropped, firing.broken)


def test_units_come_to_the_wheel_until_one_is_no_timer() -> None:
    wheel, due = TimerWheel(), [3000, 1001, 1000, 9000]
    wheel.add(Timer(1000, 4, 7))
    assert wheel.next_ms == 1000
    units = b"".join([UNIT.pack(0, 100, due_ms) for due_ms in due]) + UNIT.pack(0, 100, -3)
    assert wheel.spread(units, 1, 4, 50) == 3
    assert len(wheel) == 4
    expected = [Timer(1000, 4, 7), Timer(1000, 4, 51), Timer(1001, 4, 50), Timer(9000, 4, 52)]
    assert drained(wheel, 9000) == expected


def test_firing_record_comes_back() -> None:
    firing = Firing([(1023, 1 << 60), (0, 0)], [(7, 8)], (12, 3))
    assert decode_firing(encode_firing(firing)) == firing
    bare = Firing([], [])
    assert decode_firing(encode_firing(bare)) == bare


@pytest.mark.parametrize(
    "body", [b"", b"\x01" * 16, b"\x02" + bytes(16), encode_firing(Firing([(1, 2)]))[:-1]]
)
def test_what_is_no_firing_record_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="firing record"):
        decode_firing(body)


def test_a_later_record_says_how_much_of_a_broken_one_fired() -> None:
    broken = Firing([(0, 1), (0, 2), (0, 3)], [(0, 9)])
    assert done_places([(5, broken)]) == [(0, 1), (0, 2), (0, 3), (0, 9)]
    stated = [(5, broken), (6, Firing([(0, 2)], [], (5, 1))), (7, Firing([(0, 3)], [], (5, 1)))]
    assert done_places(stated) == [(0, 1), (0, 9), (0, 2), (0, 3)]
