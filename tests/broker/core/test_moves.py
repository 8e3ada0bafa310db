"""Where topics go when their shard is drained, and what keeps it from being so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.core.placing.moves import Unread, targets, total, unread
from imago_broker.core.placing.placement import Room

ROOMS = [Room(0, 9, "a"), Room(1, 5, "a"), Room(2, 7, "b"), Room(3, 8, "c")]


@pytest.mark.parametrize(
    ("writable", "chosen"),
    [
        ({0}, (1,)),  # the emptiest, as far as others are concerned
        ({0, 1}, (2,)),  # keeps its number of shards, in another zone
        ({0, 1, 2}, (3,)),
        ({0, 1, 2, 3}, ()),  # everywhere else already
        (set(), (1,)),
    ],
)
def test_a_topic_keeps_its_number_of_shards(writable: set[int], chosen: tuple[int, ...]) -> None:
    assert targets(ROOMS, writable, 0) == chosen


def test_a_topic_without_another_place_stays() -> None:
    with pytest.raises(ValueError, match="no other shard"):
        targets([Room(0, 1)], {0}, 0)
    with pytest.raises(ValueError, match="no other shard"):
        targets([], {0}, 0)


@given(
    rooms=st.sets(st.integers(0, 9)).map(lambda found: [Room(n, n) for n in sorted(found)]),
    writable=st.sets(st.integers(0, 9)),
    own=st.integers(0, 9),
)
def test_it_never_goes_where_it_leaves_and_always_has_a_place(
    rooms: list[Room], writable: set[int], own: int
) -> None:
    free = {room.shard for room in rooms} - {own}
    if not free:
        return
    chosen = set(targets(rooms, writable, own))
    assert chosen <= free - writable
    assert (writable | chosen) & free


def test_what_is_unread_is_what_the_slowest_group_has_to_read() -> None:
    queues = {0: (0, 10), 1: (5, 8), 2: (4, 4), 3: (0, 0)}
    found, left = unread(queues, {"fast": {0: 10, 1: 8}, "slow": {0: 7, 1: 2}})
    assert (found, left) == (Unread(2, 6, {"slow": 6}, 0), frozenset({0, 1}))


def test_a_group_that_has_told_nothing_of_a_queue_has_read_nothing_of_it() -> None:
    found, _ = unread({0: (0, 3), 1: (0, 4)}, {"g": {0: 3}})
    assert found == Unread(1, 4, {"g": 4}, 0)


def test_without_groups_messages_wait_for_their_expiry() -> None:
    assert unread({0: (2, 5)}, {}) == (Unread(1, 3, {}, 3), frozenset({0}))
    assert unread({0: (5, 5)}, {}) == (Unread(), frozenset())
    assert unread({0: (2, 5)}, {"g": {0: 9}}) == (Unread(), frozenset())


def test_parts_add_up() -> None:
    parts = [Unread(1, 2, {"a": 2}, 0), Unread(2, 3, {"a": 1, "b": 3}, 4)]
    assert total(parts) == Unread(3, 5, {"a": 3, "b": 3}, 4)
