"""What the end-to-end suite's watch of pods counts as taken away, on made-up changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from imago_e2e.watching import Seen, deletions, disturbed_together, seen_in


def seen(
    pod: str,
    uid: str,
    *,
    deleting: bool = False,
    ready: bool = False,
    gone: bool = False,
    evicted: bool = False,
) -> Seen:
    return Seen(
        at=0.0,
        pod=pod,
        shard=int(pod.partition("-")[0].removeprefix("s")),
        uid=uid,
        deleting=deleting,
        ready=ready,
        gone=gone,
        evicted=evicted,
    )


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


def evicted(pod: str) -> list[Seen]:
    """A pod of a node that dies, and comes back after the time that it is waited for."""
    return [
        seen(pod, "old", ready=True),
        seen(pod, "old"),
        seen(pod, "old", evicted=True),
        seen(pod, "old", deleting=True, evicted=True),
        seen(pod, "old", deleting=True, gone=True, evicted=True),
        seen(pod, "new"),
        seen(pod, "new", ready=True),
    ]


def test_what_kubernetes_evicts_from_a_dead_node_is_nobodys_doing() -> None:
    both = [each for pair in zip(evicted("s0-0"), evicted("s1-0"), strict=True) for each in pair]
    assert disturbed_together(both) == []
    going = [seen("s0-1", "old", ready=True), seen("s0-1", "old", deleting=True)]
    assert disturbed_together([*going, *both]) == [], "it was taken before the node died"


def test_none_is_taken_beside_one_that_was_evicted() -> None:
    first = evicted("s0-0")
    for so_far in range(4, len(first)):
        told = disturbed_together([*first[:so_far], *taken_and_back("s0-1")])
        assert told == ["s0-1 beside s0-0"]
        told = disturbed_together([*first[:so_far], *taken_and_back("s1-1")])
        assert told == ["s0-0 and s1-1"]
    for other in ("s0-1", "s1-1"):
        assert disturbed_together([*first, *taken_and_back(other)]) == []


def test_one_that_somebody_took_is_not_excused_by_an_eviction_afterwards() -> None:
    going = [seen("s0-0", "old", ready=True), seen("s0-0", "old", deleting=True)]
    too = seen("s0-0", "old", deleting=True, evicted=True)
    beside = taken_and_back("s0-1")
    assert disturbed_together([*beside[:2], *going, too]) == ["s0-0 beside s0-1"]
    assert [each.evicted for each in deletions([*going, too])] == [False]
    assert [each.evicted for each in deletions(evicted("s0-0"))] == [True]


def test_one_that_came_back_from_an_eviction_may_be_taken_only_like_any_other() -> None:
    back = [*evicted("s0-0")[:6], seen("s0-0", "new", deleting=True)]
    assert disturbed_together(back) == []
    assert disturbed_together([seen("s0-1", "old"), *back]) == ["s0-0 beside s0-1"]


def test_what_is_deleted_on_a_node_without_power_was_away_by_itself() -> None:
    first = taken_and_back("s0-0")
    before = [seen("s1-0", "old", ready=True)]
    deleted = seen("s1-0", "old", deleting=True, ready=True)
    dark = replace(deleted, dark=True)
    assert disturbed_together([*first[:4], *before, deleted]) == ["s0-0 and s1-0"]
    assert disturbed_together([*first[:4], *before, dark]) == []
    assert disturbed_together([dark, *taken_and_back("s1-1")]) == ["s1-1 beside s1-0"]
    again = seen("s1-0", "new", deleting=True)
    assert disturbed_together([dark, seen("s1-1", "old"), again]) == ["s1-0 beside s1-1"]


def test_the_pod_says_on_which_node_it_is() -> None:
    there = event([])
    there["object"]["spec"] = {"nodeName": "node2"}
    assert [seen_in(there, 1.0, dark).dark for dark in ({"node2"}, {"node3"}, ())] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("status", "reason", "by_kubernetes"),
    [
        ("True", "DeletionByTaintManager", True),
        ("True", "DeletionByPodGC", True),
        ("False", "DeletionByTaintManager", False),
        ("True", "EvictionByEvictionAPI", False),
        ("True", "PreemptionByScheduler", False),
    ],
)
def test_the_pod_itself_says_who_takes_it(status: str, reason: str, by_kubernetes: bool) -> None:
    conditions = [{"type": "DisruptionTarget", "status": status, "reason": reason}]
    assert seen_in(event(conditions), 1.0).evicted is by_kubernetes


def test_a_pod_that_somebody_deletes_says_nothing_of_an_eviction() -> None:
    unready = {"type": "Ready", "status": "False", "reason": "DeletionByTaintManager"}
    found = seen_in(event([unready]), 1.0)
    assert (found.deleting, found.ready, found.evicted) == (True, False, False)
    assert seen_in({**event([unready]), "type": "DELETED"}, 1.0).gone


def event(conditions: list[dict[str, str]]) -> dict[str, Any]:
    metadata = {
        "name": "demo-s1-2",
        "labels": {"imago.dev/shard": "1"},
        "uid": "u",
        "deletionTimestamp": "2026-01-02T03:04:05Z",
    }
    return {
        "type": "MODIFIED",
        "object": {"metadata": metadata, "status": {"conditions": conditions}},
    }
