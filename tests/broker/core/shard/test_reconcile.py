"""Where two logs part is decided by epochs alone, and equals what a look at the bytes says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from imago_broker.core.shard.reconcile import (
    CutBack,
    epoch_before,
    last_epoch,
    reconcile,
    takes,
    valid_fetch,
    written_epochs,
)
from imago_broker.core.shard.values import Log

LEADER = Log(0, 120, ((1, 0), (2, 60), (4, 100)))


def test_follower_that_is_only_behind_is_not_cut() -> None:
    assert reconcile(Log(0, 80, ((1, 0), (2, 60))), LEADER) == CutBack(80, 2)


def test_follower_of_an_unknown_epoch_walks_back_to_a_common_one() -> None:
    assert reconcile(Log(0, 115, ((1, 0), (2, 60), (3, 90))), LEADER) == CutBack(90, 2)
    assert reconcile(Log(0, 115, ((1, 0), (3, 50))), LEADER) == CutBack(50, 1)


def test_former_leader_loses_what_only_it_had_written() -> None:
    assert reconcile(Log(0, 140, ((1, 0), (2, 60))), LEADER) == CutBack(100, 2)


def test_epochs_without_bytes_are_not_common() -> None:
    follower = Log(0, 50, ((1, 0), (4, 50)))
    assert written_epochs(follower) == ((1, 0),)
    assert reconcile(follower, LEADER) == CutBack(50, 1)
    assert last_epoch(follower) == 1


def test_bytes_of_the_epoch_that_is_being_filled_are_never_cut() -> None:
    """The leader has written more since it told its end."""
    assert reconcile(Log(0, 150, ((1, 0), (2, 60), (4, 100))), LEADER) == CutBack(150, 4)


def test_empty_follower_begins_where_the_leader_does() -> None:
    assert reconcile(Log(), LEADER) == CutBack(0, 0)
    later = Log(60, 120, ((2, 60), (4, 100)))
    assert reconcile(Log(), later) == CutBack(60, 0, reset=True)


def test_follower_below_the_leaders_start_begins_anew() -> None:
    later = Log(90, 120, ((2, 60), (4, 100)))
    assert reconcile(Log(0, 80, ((1, 0), (2, 60))), later) == CutBack(90, 0, reset=True)


def test_nothing_in_common_at_one_start_is_cut_without_beginning_anew() -> None:
    assert reconcile(Log(0, 30, ((3, 0),)), LEADER) == CutBack(0, 0)


def test_fetch_is_valid_only_at_a_place_of_the_same_epoch() -> None:
    assert valid_fetch(LEADER, 80, 2)
    assert not valid_fetch(LEADER, 80, 1)
    assert not valid_fetch(LEADER, 121, 4)
    later = Log(90, 120, ((2, 60), (4, 100)))
    assert valid_fetch(later, 90, 0)
    assert not valid_fetch(later, 89, 2)


def test_only_frames_of_the_same_epoch_count() -> None:
    assert [takes(epoch, 4) for epoch in (3, 4, 5)] == [False, True, False]


# ---- against the bytes -----------------------------------------------------------------------


def logs(cuts: list[tuple[int, int]]) -> tuple[Log, list[int], Log, list[int]]:
    """Two logs as leaders of rising epochs write them: each epoch is written to the log of one
    member, from a prefix of what the one before wrote or the other had."""
    first: list[int] = []
    second: list[int] = []
    vectors: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for epoch, (who, size) in enumerate(cuts, 1):
        log, other = (first, second) if who % 2 else (second, first)
        vector, other_vector = vectors if who % 2 else vectors[::-1]
        vector[:] = [pair for pair in vector if pair[1] < len(log)] + [(epoch, len(log))]
        log += [epoch] * size
        if who >= 2:  # the other follows: up to a part of what was written
            cut = reconcile(as_log(other, other_vector), as_log(log, vector))
            del other[cut.end :]
            copied = log[cut.end : cut.end + size // 2 + 1]
            other += copied
            other_vector[:] = [pair for pair in vector if pair[1] < len(other)]
    return as_log(first, vectors[0]), first, as_log(second, vectors[1]), second


def as_log(log: list[int], vector: list[tuple[int, int]]) -> Log:
    return Log(0, len(log), tuple(vector))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=8))
def test_cut_ends_where_the_bytes_begin_to_differ(cuts: list[tuple[int, int]]) -> None:
    own, own_bytes, theirs, their_bytes = logs(cuts)
    equal = 0
    while equal < min(own.end, theirs.end) and own_bytes[equal] == their_bytes[equal]:
        equal += 1
    # Whoever is compared with leads by now, in an epoch of its own.
    led = [pair for pair in theirs.epochs if pair[1] < theirs.end]
    theirs = Log(0, theirs.end, (*led, (len(cuts) + 1, theirs.end)))
    cut = reconcile(own, theirs)
    assert cut.end == equal
    assert cut.epoch == epoch_before(theirs, equal)
    assert valid_fetch(theirs, cut.end, cut.epoch)
