"""Waiting rooms against a list that does the same slowly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from imago_broker.core.waiting import SLOT_MS, Ticket, WaitingRoom

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 2000)),
        st.tuples(st.just("remove"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("due"), st.integers(0, 700), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_room_agrees_with_a_list(plan: list[tuple[str, int, int]]) -> None:
    room: WaitingRoom[int, int] = WaitingRoom(size_max=20)
    waiting: list[Ticket[int, int]] = []
    now = 0
    for number, (action, a, b) in enumerate(plan):
        if action == "add":
            ticket = room.add(a, now + b, number)
            assert (ticket is None) == (len(waiting) == 20)
            waiting += [ticket] if ticket else []
        elif action == "remove" and waiting:
            gone = waiting.pop(a % len(waiting))
            assert room.remove(gone)
            assert not room.remove(gone)
        elif action == "due":
            now += a
            ended = room.due(now)
            assert all(ticket.deadline_ms <= now for ticket in ended)
            waiting = [ticket for ticket in waiting if ticket not in ended]
            assert all(ticket.deadline_ms > now - SLOT_MS for ticket in waiting)
        assert len(room) == len(waiting)
        assert bool(room) == bool(waiting)
        for key in range(4):
            assert room.waiting_for(key) == [t for t in waiting if t.key == key]
        assert sorted(t.token for t in room.everyone()) == [
            t.token for t in sorted(waiting, key=lambda t: t.token)
        ]
        wake = room.next_wake_ms()
        if waiting:
            first = min(ticket.deadline_ms for ticket in waiting)
            assert wake is not None
            assert first <= wake < first + SLOT_MS
        else:
            assert wake is None


def test_served_tickets_leave_nothing_behind() -> None:
    room: WaitingRoom[str, None] = WaitingRoom(size_max=10)
    for _ in range(1000):
        ticket = room.add("queue", 15_000, None)
        assert ticket is not None
        room.remove(ticket)
    assert len(room) == 0
    assert room.next_wake_ms() is None
