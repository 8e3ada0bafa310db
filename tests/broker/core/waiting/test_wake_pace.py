"""When wake-ups are put off: only in the millisecond behind one in which very many were wanted."""

from __future__ import annotations

from imago_broker.core.wake_pace import AT_ONCE_MAX, WakePace


def test_few_wake_ups_go_out_at_once() -> None:
    pace = WakePace()
    for now_ms in range(100, 200):
        assert not any(pace.puts_off(1, now_ms) for _ in range(AT_ONCE_MAX))


def test_many_are_put_off_from_the_next_millisecond_on_and_until_they_are_few_again() -> None:
    pace = WakePace()
    assert not pace.puts_off(AT_ONCE_MAX + 1, 100), "nobody knew that there would be so many"
    assert pace.puts_off(1, 101)
    assert pace.puts_off(AT_ONCE_MAX, 101)
    assert pace.puts_off(1, 102)
    assert not pace.puts_off(1, 103)


def test_many_a_while_ago_put_off_nothing() -> None:
    pace = WakePace()
    pace.puts_off(3 * AT_ONCE_MAX, 100)
    assert pace.puts_off(1, 102)
    pace.puts_off(2 * AT_ONCE_MAX, 102)
    assert not pace.puts_off(1, 105)
