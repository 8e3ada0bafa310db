"""The feature level rises with the last member, unless somebody holds it; what goes back may."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_operator.model.actions import RaiseLevel
from imago_operator.model.versions import step_problem
from imago_operator.plan import plan
from imago_operator.promises import broken
from imago_testing.operated.looks import lacking, of, running
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START

if TYPE_CHECKING:
    from imago_operator.model.state import Observed


@pytest.fixture(name="seen", scope="module")
def _seen() -> Observed:
    return running()


def levels(seen: Observed, cluster: int | None, *members: int) -> Observed:
    """Return the same look with what the cluster may use and members understand, in turn."""
    assert seen.registry is not None
    said = list(members)
    shards = {
        number: replace(
            shard,
            members=tuple(
                replace(member, feature_level=said.pop(0) if len(said) > 1 else said[0])
                for member in shard.members
            ),
        )
        for number, shard in seen.registry.shards.items()
    }
    registry = replace(seen.registry, feature_level=cluster, shards=shards)
    return replace(seen, registry=registry)


def raised(seen: Observed, spec: dict[str, object] | None = None) -> list[int]:
    desired = wanted(spec)
    found = plan(desired, seen, START)
    assert broken(desired, seen, found.actions, START) == []
    return [action.level for action in of(found, RaiseLevel)]


def test_it_rises_when_the_last_member_understands_it(seen: Observed) -> None:
    assert raised(levels(seen, 1, 2, 2, 2, 2, 2, 1)) == []
    assert raised(levels(seen, 1, 2)) == [2]
    assert raised(levels(seen, 2, 2)) == []
    assert raised(levels(seen, None, 2)) == [], "brokers that know nothing of it are not asked"


def test_a_person_holds_it_back(seen: Observed) -> None:
    assert raised(levels(seen, 1, 3), {"spec.featureLevel": 1}) == []
    assert raised(levels(seen, 1, 3), {"spec.featureLevel": 2}) == [2]
    assert raised(levels(seen, 2, 3), {"spec.featureLevel": 1}) == [], "it is never lowered"


def test_nothing_is_raised_while_a_member_is_away_or_pods_are_to_change(seen: Observed) -> None:
    new = levels(seen, 1, 2)
    assert new.registry is not None
    shard = new.registry.shards[0]
    fewer = {**new.registry.shards, 0: replace(shard, members=shard.members[:-1])}
    assert raised(replace(new, registry=replace(new.registry, shards=fewer))) == []
    assert raised(new, {"spec.image": "mine:2"}) == []
    assert raised(lacking(new, "demo-s0-1")) == [2], "who is behind understands it all the same"


def test_a_promise_watches_over_it(seen: Observed) -> None:
    desired, old = wanted({"spec.featureLevel": 2}), levels(seen, 1, 2, 1)
    assert broken(desired, old, [RaiseLevel(3)], START) == [
        "level 3 is raised that a member may not understand",
        "level 3 is raised, held at 2",
    ]


@pytest.mark.parametrize(
    ("now", "then", "level", "why"),
    [
        ("0.2.0", "0.1.0", 1, None),
        ("0.2.0", "0.1.9", 2, "does not understand the cluster's feature level 2"),
        ("0.2.0", "0.1.0", None, "feature level"),
        ("0.3.0", "0.1.0", 1, "more than one minor step"),
        ("1.0.0", "0.9.0", 1, "more than one minor step"),
        ("0.2.5", "0.2.0", 2, None),
    ],
)
def test_one_step_back_while_the_level_allows(
    now: str, then: str, level: int | None, why: str | None
) -> None:
    said = step_problem(now, then, level)
    assert said is None if why is None else why in (said or "")
