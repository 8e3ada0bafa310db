"""New topics spread over zones first, then over the emptier shards."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.core.placing.placement import Room, choose

rooms = st.lists(
    st.builds(Room, st.integers(0, 1023), st.integers(0, 100), st.sampled_from(["", "a", "b"])),
    unique_by=lambda room: room.shard,
    min_size=1,
    max_size=12,
)


def test_the_emptier_shards_come_first() -> None:
    assert choose([Room(0, 9), Room(1, 2), Room(2, 5)], 2) == (1, 2)


def test_another_zone_comes_before_an_emptier_shard() -> None:
    assert choose([Room(0, 0, "a"), Room(1, 0, "a"), Room(2, 50, "b")], 2) == (0, 2)


def test_what_a_topic_has_counts() -> None:
    has = [Room(0, 0, "a")]
    assert choose([Room(0, 0, "a"), Room(1, 0, "a"), Room(2, 50, "b")], 1, taken=has) == (2,)


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="3 more needed, 2 to be had"):
        choose([Room(0, 0), Room(1, 0)], 3)


@given(free=rooms, data=st.data())
def test_zones_differ_by_one_at_most_while_they_have_room(
    free: list[Room], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(free)))
    chosen = choose(free, count)
    assert len(set(chosen)) == count
    zone = {room.shard: room.zone or str(room.shard) for room in free}
    used = Counter(zone[shard] for shard in chosen)
    size = Counter(zone.values())
    for name, other in ((a, b) for a in size for b in size):
        if used[name] < size[name]:
            assert used[other] <= used[name] + 1
