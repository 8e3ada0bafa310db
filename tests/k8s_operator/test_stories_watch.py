"""What the end-to-end suite's watch of pods counts as taken away, on made-up changes."""

from __future__ import annotations

from imago_e2e.watching import Seen, disturbed_together


def seen(
    pod: str, uid: str, *, deleting: bool = False, ready: bool = False, gone: bool = False
) -> Seen:
    shard = int(pod.partition("-")[0].removeprefix("s"))
    return Seen(at=0.0, pod=pod, shard=shard, uid=uid, deleting=deleting, ready=ready, gone=gone)


def taken_and_back(pod: str) -> list[Seen]:
    return [
        seen(pod, "old", ready=True),
        seen(pod, "old", deleting=True, ready=True),
        seen(pod, "old", deleting=True),
        seen(pod, "old", deleting=True, gone=True),
        seen(pod, "new"),
        seen(pod, "new", ready=True),
    ]


def test_one_after_the_other_is_as_it_should_be() -> None:
    assert disturbed_together([*taken_and_back("s0-0"), *taken_and_back("s1-0")]) == []


def test_a_pod_may_be_taken_that_is_not_ready_by_itself() -> None:
    others = [seen(name, "old", ready=True) for name in ("s0-1", "s0-2")]
    assert disturbed_together([*others, seen("s0-0", "old"), *taken_and_back("s0-0")[1:]]) == []


def test_none_is_taken_beside_others_that_are_not_ready_by_themselves() -> None:
    unready = [seen("s0-1", "old"), seen("s0-2", "old"), seen("s1-0", "old")]
    assert disturbed_together([*unready, *taken_and_back("s0-0")]) == ["s0-0 beside s0-1 and s0-2"]


def test_two_at_a_time_are_told_before_the_first_is_ready_again() -> None:
    first, other = taken_and_back("s0-0"), taken_and_back("s0-1")
    for so_far in range(2, len(first)):
        assert disturbed_together([*first[:so_far], *other]) == ["s0-1 beside s0-0"]


def test_of_more_shards_than_may_be_is_told() -> None:
    first, other = taken_and_back("s0-0"), taken_and_back("s1-1")
    assert disturbed_together([*first[:4], *other]) == ["s0-0 and s1-1"]
    assert disturbed_together([*first[:4], *other], shards=2) == []


def test_a_pod_that_vanishes_without_a_word_is_away_too() -> None:
    vanished = [seen("s1-2", "old", gone=True)]
    assert disturbed_together([*vanished, *taken_and_back("s0-1")]) == ["s0-1 and s1-2"]
    assert disturbed_together([*vanished, *taken_and_back("s1-1")]) == ["s1-1 beside s1-2"]
