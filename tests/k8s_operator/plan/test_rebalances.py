"""Rebalances that people make, and those that the planner makes itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from imago_operator.model import names
from imago_operator.model.actions import DeleteChild, Uncordon
from imago_operator.model.state import Observed, OwnedObject
from imago_operator.observing.observed import shards_emptied
from imago_operator.plan import plan
from imago_operator.plan.objects import REBALANCE
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.operated.resources import UID, wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

FILL = OwnedObject(kind=REBALANCE, name="demo-fill-1", uid="f-1")


@pytest.fixture(name="seen", scope="module")
def _seen() -> Observed:
    """Return what is seen of a cluster of two shards, one of which is drained."""
    world = ClusterWorld(wanted())
    world.settle()
    seen = world.observe()
    assert seen.registry is not None
    shard = replace(seen.registry.shards[1], cordoned=True, drained=True)
    registry = replace(seen.registry, shards={**seen.registry.shards, 1: shard})
    return replace(seen, registry=registry)


def test_a_shard_that_was_drained_takes_topics_again_when_it_is_wanted(seen: Observed) -> None:
    assert Uncordon(1) in plan(wanted(), seen, START).actions


def test_a_shard_that_a_person_empties_stays_empty(seen: Observed) -> None:
    kept = replace(seen, kept_empty=frozenset({1}))
    assert Uncordon(1) not in plan(wanted(), kept, START).actions


def rebalance(changes: dict[str, Any], owner: str = "", **metadata: Any) -> dict[str, Any]:
    found = manifest(REBALANCE, changes)
    found["metadata"] |= {"namespace": "mq"} | metadata
    if owner:
        found["metadata"]["ownerReferences"] = [{"uid": owner, "controller": True}]
    return found


@pytest.mark.parametrize(
    ("item", "shards"),
    [
        (rebalance({}), (1,)),
        (rebalance({"spec.mode": "Seal", "spec.shards": [0, 1]}), (0, 1)),
        (rebalance({"spec.mode": "Fill"}), ()),
        (rebalance({"status": {"phase": "Succeeded"}}), (1,)),
        (rebalance({"status": {"phase": "Failed"}}), ()),
        (rebalance({}, deletionTimestamp="2026-01-01T00:00:00Z"), ()),
        (rebalance({}, owner=UID), ()),
        (rebalance({}, owner="another"), (1,)),
        (rebalance({"spec.clusterRef": {"name": "other"}}), ()),
        (rebalance({}, namespace="elsewhere"), ()),
    ],
)
def test_which_shards_a_rebalance_keeps_empty(
    item: dict[str, Any], shards: tuple[int, ...]
) -> None:
    assert shards_emptied(item, wanted()) == shards


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("demo-fill-1", True),
        ("demo-fill-0-1", True),
        ("demo-fill-0", False),
        ("demo-fill-11", False),
    ],
)
def test_what_filled_a_shard_goes_with_it(seen: Observed, name: str, goes: bool) -> None:
    fill = replace(FILL, name=name)
    observed = replace(seen, children=(*seen.children, fill))
    found = plan(wanted({"spec.brokers.shards": 1}), observed, START)
    assert (DeleteChild(REBALANCE, name, "f-1") in found.actions) == goes
    assert names.fill("demo", (1,)) == "demo-fill-1"
