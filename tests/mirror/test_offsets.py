"""Which messages of a target queue a group may pass: never one that it has not consumed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_mirror.core.groups import TargetQueue, new_offsets
from imago_mirror.core.offsets import NEEDS_MAX, PARTS_MAX, CopiedRange, OffsetMap, Part
from imago_testing.searching import examples

LOCAL = ""
"""Of a message that clients sent to the target."""

queue_contents = st.lists(st.sampled_from(["a", "b", LOCAL]), min_size=1, max_size=60)


def filled(
    contents: list[str], order: list[int], parts_max: int, skips: list[int]
) -> tuple[OffsetMap, list[tuple[str, int]]]:
    """Return a map in which the copies of a queue were noted, in any order, and what is where."""
    following = {"a": 0, "b": 0}
    where: list[tuple[str, int]] = []
    for index, queue in enumerate(contents):
        if queue != LOCAL:
            following[queue] += skips[index % len(skips)]
        where.append((queue, following.get(queue, 0)))
        if queue != LOCAL:
            following[queue] += 1
    map_ = OffsetMap(parts_max=parts_max)
    for target in sorted(range(len(where)), key=lambda each: order[each % len(order)]):
        queue, source = where[target]
        if queue != LOCAL:
            map_.note(queue, source, target)
    return map_, where


@settings(max_examples=examples(300), deadline=None)
@given(
    queue_contents,
    st.lists(st.integers(0, 9), min_size=1, max_size=7),
    st.integers(1, 6),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(0, 70),
    st.integers(0, 70),
    st.integers(0, 59),
)
def test_a_group_passes_copies_that_it_consumed_and_nothing_else(
    contents: list[str],
    order: list[int],
    parts_max: int,
    skips: list[int],
    consumed_a: int,
    consumed_b: int,
    start: int,
) -> None:
    map_, where = filled(contents, order, parts_max, skips)
    consumed = {"a": consumed_a, "b": consumed_b}
    reached = map_.advance(start, consumed)
    assert len(map_.parts) <= parts_max
    assert reached >= start
    for queue, source in where[start:reached]:
        assert queue != LOCAL, "a message of the target's own clients was passed"
        assert source < consumed[queue], "a message was passed that was not consumed"


@settings(max_examples=examples(200), deadline=None)
@given(queue_contents, st.integers(0, 70), st.integers(0, 70))
def test_without_a_bound_it_goes_as_far_as_can_be(
    contents: list[str], consumed_a: int, consumed_b: int
) -> None:
    map_, where = filled(contents, [0], 1000, [0])
    consumed = {"a": consumed_a, "b": consumed_b}
    furthest = 0
    while furthest < len(where) and where[furthest][1] < consumed.get(where[furthest][0], 0):
        furthest += 1
    assert map_.advance(0, consumed) == furthest


@settings(max_examples=examples(100), deadline=None)
@given(queue_contents, st.integers(0, 60))
def test_a_cut_forgets_what_the_target_lost(contents: list[str], end: int) -> None:
    map_, _ = filled(contents, [0], 1000, [0])
    map_.cut(end)
    assert map_.advance(0, {"a": 1000, "b": 1000}) <= max(end, 0)
    assert all(part.end <= end for part in map_.parts)


def test_one_run_is_one_part() -> None:
    map_ = OffsetMap()
    for first in range(0, 1000, 10):
        map_.note("a", 5 + first, first, 10)
    map_.note("a", 5, 0, 1000)  # said again, as after a restart
    assert map_.parts == (Part(0, 1000, (CopiedRange("a", 5, 1005),)),)


def test_parts_are_bounded_and_what_was_joined_is_passed_as_a_whole() -> None:
    map_ = OffsetMap()
    for target in range(2 * PARTS_MAX):
        map_.note("ab"[target % 2], target // 2, target)
    assert len(map_.parts) == PARTS_MAX
    assert map_.advance(0, {"a": PARTS_MAX, "b": PARTS_MAX}) == 2 * PARTS_MAX
    assert map_.advance(0, {"a": 3, "b": 3}) == 0


def test_a_part_is_of_so_many_queues_at_most() -> None:
    map_ = OffsetMap(parts_max=1)
    for target in range(NEEDS_MAX + 1):
        map_.note(f"queue {target}", 0, target)
    (part,) = map_.parts
    assert part.first == NEEDS_MAX, "what cannot be joined goes"


def test_offsets_never_go_back_and_unknown_ones_begin_safely() -> None:
    map_ = OffsetMap()
    map_.note("a", 0, 100, 50)
    known = {"q": TargetQueue(first=100, map=map_, feeds=frozenset({"a"}))}
    assert new_offsets(known, {"a": 20}, {}) == {"q": 120}
    assert new_offsets(known, {"a": 0}, {}) == {"q": 100}, "else it might begin at the end"
    assert new_offsets(known, {"a": 20}, {"q": 130}) == {}
    assert new_offsets(known, {"a": 40}, {"q": 130}) == {"q": 140}
    assert new_offsets(known, {"other": 40}, {}) == {}
