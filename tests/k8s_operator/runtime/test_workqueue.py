"""Which key is worked on next: each once, one at a time, none forgotten, all groups in turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from imago_operator.reconcile import ObjectKey
from imago_operator.runtime.workqueue import GAP_S, WorkQueue


def key(name: str, kind: str = "ImagoTopic", namespace: str = "mq") -> ObjectKey:
    return ObjectKey(kind, namespace, name)


A, B = key("a"), key("b")


def test_many_requests_are_one_look_at_the_earliest_moment() -> None:
    queue = WorkQueue(4)
    for at in (5.0, 2.0, 9.0):
        queue.add(A, at)
    assert queue.next_at() == 2.0
    assert queue.take(1.9) is None
    assert queue.take(2.0) == A
    queue.done(A, None)
    assert queue.take(100.0) is None


def test_a_key_is_never_worked_on_twice_at_a_time() -> None:
    queue = WorkQueue(4)
    queue.add(A, 0)
    assert queue.take(0) == A
    queue.add(A, 0)
    assert queue.take(10) is None
    assert queue.running() == {A: 0}
    queue.done(A, None)
    assert queue.take(10) == A


def test_what_is_asked_during_a_look_comes_before_what_the_look_asks() -> None:
    queue = WorkQueue(4)
    queue.add(A, 0)
    queue.take(0)
    queue.add(A, 3)
    queue.done(A, 60)
    assert queue.next_at() == 3


def test_the_same_key_has_a_pause_whatever_happens_to_it() -> None:
    queue = WorkQueue(4)
    queue.add(A, 0)
    queue.take(10)
    queue.add(A, 10)
    queue.done(A, None)
    assert queue.next_at() == 10 + GAP_S


def test_a_group_with_many_keys_does_not_hold_back_another() -> None:
    queue = WorkQueue(2)
    for number in range(1000):
        queue.add(key(f"t{number}"), 0)
    cluster = key("demo", "ImagoCluster", "other")
    queue.add(cluster, 0)
    taken = [queue.take(0) for _ in range(3)]
    assert cluster in taken
    assert queue.take(0) is None  # two of the group are worked on
    first = taken[0]
    assert first is not None
    queue.done(first, None)
    assert queue.take(0) is not None


@given(
    st.lists(
        st.tuples(
            st.sampled_from("adt"),
            st.integers(0, 4),
            st.integers(0, 20),
        ),
        max_size=60,
    )
)
def test_whatever_happens_no_request_is_lost(steps: list[tuple[str, int, int]]) -> None:
    queue, now = WorkQueue(2), 0.0
    running: list[ObjectKey] = []
    requested: set[ObjectKey] = set()
    for what, number, later in steps:
        now += later / 10
        if what == "a":
            queue.add(key(str(number)), now + later)
            requested.add(key(str(number)))
        elif what == "t" and (taken := queue.take(now)) is not None:
            assert taken not in running
            running.append(taken)
            requested.discard(taken)
        elif what == "d" and running:
            queue.done(running.pop(0), None)
    for one in running:
        queue.done(one, None)
    left = set()
    while (taken := queue.take(now + 1000)) is not None:
        left.add(taken)
        queue.done(taken, None)
    assert left == requested
