"""Who may lead, by tables that can be checked by eye."""

from __future__ import annotations

import pytest

from imago_broker.core.shard.election import ElectionOutcome, Patience, choose, electable, elected
from imago_broker.core.shard.in_sync import former_after, resized
from imago_broker.core.shard.values import MemberInfo
from imago_broker.model.registry.shard import Member, ShardState

A, B, C = Member("a", 1), Member("b", 2), Member("c", 3)
KNOWN = frozenset("abc")


def shard(
    *in_sync: Member, former: tuple[Member, ...] = (), leader: Member | None = A
) -> ShardState:
    return ShardState(leader=leader, epoch=5, in_sync=in_sync, former=former, version=7)


def info(
    incarnation: int, *, lost: bool = False, epoch: int = 5, end: int = 100, hole: bool = False
) -> MemberInfo:
    return MemberInfo(incarnation, 0, lost, epoch, end, hole)


@pytest.mark.parametrize(
    ("state", "live", "candidates"),
    [
        # one of the set is there
        (shard(A, B, C), {"b": info(2), "c": info(3)}, ("b", "c")),
        (shard(A, B), {"c": info(3)}, ()),
        # a later life of a member is as good, but comes after those that went on
        (shard(A, B, C), {"b": info(9), "c": info(3)}, ("c", "b")),
        # unless it lost its memory
        (shard(A, B, C), {"b": info(9, lost=True), "c": info(3)}, ("c",)),
        # the mark of this very life is no reason: it was put into the set since
        (shard(A, B), {"b": info(2, lost=True)}, ("b",)),
        # all lost their memory: all have to be back
        (shard(A, B), {"a": info(8, lost=True)}, ()),
        (shard(A, B), {"a": info(8, lost=True, end=90), "b": info(9, lost=True, end=70)}, ("a",)),
        (
            shard(A, B),
            {"a": info(8, lost=True, epoch=4), "b": info(9, lost=True, end=70)},
            ("b",),
        ),
        # a set of one leads itself
        (shard(A), {"a": info(8, lost=True)}, ("a",)),
        # unless somebody left who may hold more
        (shard(A, former=(B,)), {"a": info(8, lost=True)}, ()),
        (shard(A, former=(B,)), {"a": info(8, lost=True, end=80), "b": info(2)}, ("b",)),
        (shard(A, former=(B,)), {"a": info(8, lost=True), "b": info(2, end=90)}, ("a",)),
        (shard(A, former=(B,)), {"b": info(2)}, ()),
        # one whole former member is enough, of those that lost power all are needed
        (shard(A, former=(B, C)), {"a": info(8, lost=True, end=80), "b": info(2)}, ("b",)),
        (
            shard(A, former=(B, C)),
            {"a": info(8, lost=True, end=80), "b": info(9, lost=True)},
            (),
        ),
    ],
)
def test_who_may_propose_itself(
    state: ShardState, live: dict[str, MemberInfo], candidates: tuple[str, ...]
) -> None:
    assert choose(state, live, KNOWN).candidates == candidates


@pytest.mark.parametrize(
    ("live", "candidates"),
    [
        # of those that came back, the longest log of the newest epoch
        ({"a": info(7, end=90), "b": info(8), "c": info(9, epoch=4, end=200)}, ("b", "a", "c")),
        # one that went on holds all, whatever its registration says of its log
        ({"a": info(7, end=90), "b": info(2, end=10)}, ("b", "a")),
        # a log with damage comes last, also that of a life that went on
        ({"a": info(7, end=90), "b": info(2, hole=True), "c": info(9)}, ("c", "a", "b")),
        ({"a": info(7, hole=True), "b": info(8, hole=True, end=120)}, ("b", "a")),
    ],
)
def test_logs_of_members_that_came_back_are_compared(
    live: dict[str, MemberInfo], candidates: tuple[str, ...]
) -> None:
    assert choose(shard(A, B, C), live, KNOWN).candidates == candidates


def test_who_may_be_outdone_waits_for_those_that_may_have_more() -> None:
    all_back = {"a": info(7, end=90), "b": info(8), "c": info(9)}
    assert choose(shard(A, B, C), all_back, KNOWN).patient == {"a": (("b", "c"), ())}
    one_missing = {"a": info(7, end=90), "b": info(8)}
    assert choose(shard(A, B, C), one_missing, KNOWN).patient == {
        "a": (("b",), ("c",)),
        "b": ((), ("c",)),
    }
    went_on = {"a": info(7, end=190), "b": info(2)}
    assert choose(shard(A, B, C), went_on, KNOWN).patient == {"a": (("b",), ("c",))}
    assert choose(shard(A), {"a": info(7)}, KNOWN).patient == {}
    damaged = {"a": info(1, hole=True), "b": info(2)}
    assert choose(shard(A, B), damaged, KNOWN).patient == {"a": (("b",), ())}


def test_patience_ends() -> None:
    assert Patience((), ("c",)).due_ms(100, 0, 5000) == 5100
    assert Patience(("b",), ("c",)).due_ms(100, 0, 5000) == 10_100
    assert Patience(("b",), ()).due_ms(19_000, 0, 5000) == 20_000, "whoever comes and goes"


def test_the_first_election_waits_for_all_that_are_known() -> None:
    nothing = ShardState()
    assert choose(nothing, {"a": info(1, end=0, epoch=0)}, frozenset("a")).candidates == ("a",)
    waits = choose(nothing, {"c": info(3, end=0, epoch=0)}, KNOWN)
    assert waits.candidates == ()
    assert waits.cause == "waiting for a, b"


def test_an_empty_newcomer_never_empties_the_others_when_the_state_is_lost() -> None:
    live = {"a": info(1), "b": info(2, end=90), "c": info(3, end=0, epoch=0)}
    assert choose(ShardState(), live, KNOWN).candidates == ("a",)


def test_a_state_older_than_the_logs_decides_nothing() -> None:
    live = {"a": info(1, epoch=9), "b": info(2)}
    assert choose(shard(A, B), live, KNOWN).candidates == ()
    assert choose(shard(A, B), {**live, "c": info(3)}, KNOWN).candidates == ("a",)


def test_the_set_of_a_state_older_than_the_logs_is_not_taken_over() -> None:
    live = {"a": info(1, epoch=3, end=40), "b": info(2, epoch=3, end=40), "c": info(3, epoch=9)}
    assert choose(shard(A, B), live, KNOWN).candidates == ("c",)
    after = elected(shard(A, B), C, live, ElectionOutcome(epoch=10, cause="x"), min_in_sync=2)
    assert after.in_sync == (C,), "members of then need not hold what the log of epoch 9 holds"


def test_a_wiped_disk_is_another_member_and_is_not_elected() -> None:
    assert choose(shard(A), {"w": info(9, end=0, epoch=0)}, KNOWN | {"w"}).candidates == ()


def test_electable_needs_a_registration() -> None:
    assert not electable(A, None)


def test_the_winner_drops_who_is_gone_and_keeps_who_restarted_under_its_old_life() -> None:
    live = {"b": info(2), "c": info(9)}
    after = elected(shard(A, B, C), B, live, ElectionOutcome(epoch=6, cause="x"), min_in_sync=2)
    assert after.in_sync == (B, C)
    assert after.former == ()
    assert after.epoch == 6
    assert after.history[-1].leader == "b"


def test_members_are_remembered_while_the_set_is_too_small() -> None:
    assert former_after(shard(A, B, C), (A, B), 2) == ()
    assert former_after(shard(A, B), (A,), 2) == (B,)
    assert former_after(shard(A, former=(B,)), (A, C), 2) == ()
    assert former_after(shard(A, former=(B,)), (A,), 2) == (B,)
    assert former_after(shard(A, B), (A,), 1) == ()


def test_a_forced_election_starts_a_set_of_its_own() -> None:
    outcome = ElectionOutcome(epoch=6, cause="forced", unclean=True)
    after = elected(shard(A, B, former=(C,)), C, {"c": info(3)}, outcome, min_in_sync=2)
    assert (after.in_sync, after.former, after.unclean) == ((C,), (), True)


def test_a_change_of_the_set_is_no_change_of_leadership() -> None:
    after = resized(shard(A, B), (A,), "b is 2000 ms behind", min_in_sync=2)
    assert (after.leader, after.epoch, after.history) == (A, 5, ())
