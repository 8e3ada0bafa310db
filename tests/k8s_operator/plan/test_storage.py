"""Volumes grow, whatever else there is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from imago_operator.model import names
from imago_operator.model.actions import (
    Apply,
    DeleteChild,
    DeletePod,
    GrowClaim,
    Handover,
)
from imago_operator.plan import PlanRow, plan
from imago_operator.plan.look import ClusterLook
from imago_testing.operated.looks import (
    changed,
    leaderless,
    of,
    reasons,
    running,
)
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.model.state import Observed


@pytest.fixture(name="seen", scope="module")
def _seen() -> Observed:
    return running()


class TestStorage:
    LARGER: ClassVar[dict[str, Any]] = {"spec.brokers.storage.size": "20Gi"}

    def test_every_claim_grows(self) -> None:
        world = ClusterWorld(wanted())
        world.settle()
        world.desired = wanted(self.LARGER)
        found = plan(world.desired, world.observe(), world.now)
        assert {action.size for action in of(found, GrowClaim)} == {"20Gi"}
        assert not [a for a in of(found, Apply) if a.manifest["kind"] == "StatefulSet"]

    @pytest.mark.parametrize("ill", ["nobody answers", "nobody leads", "crash loop", "no registry"])
    def test_claims_grow_whatever_else_there_is(self, seen: Observed, ill: str) -> None:
        """Brokers that end on a full disk need the room before anything else."""
        match ill:
            case "nobody answers":
                look = replace(seen, registry=None)
            case "nobody leads":
                look = leaderless(seen, in_sync=False)
            case "crash loop":
                look = changed(seen, "demo-s0-0", ready=False, broker=None)
                look = changed(look, "demo-s0-0", waiting="CrashLoopBackOff", annotations={})
            case _:
                assert seen.registry is not None
                look = replace(seen, registry=replace(seen.registry, connected=False))
        found = plan(wanted(self.LARGER), look, START)
        assert len(of(found, GrowClaim)) == len(seen.claims) == 6
        assert "Expanding" in reasons(found)

    def test_a_class_that_cannot_grow_is_said(self) -> None:
        seen = replace(running(), expandable={"": False})
        found = plan(wanted(self.LARGER), seen, START)
        assert "ExpansionUnsupported" in reasons(found)
        assert not of(found, GrowClaim)
        assert all(action.orphan for action in of(found, DeleteChild))

    def test_claim_templates_that_change_have_sets_made_anew(self) -> None:
        """Kubernetes refuses to change them in a StatefulSet; pods stay as they are."""
        world = ClusterWorld(wanted())
        world.settle()
        world.done.clear()
        labelled = {"persistentVolumeClaim": {"metadata": {"labels": {"team": "orders"}}}}
        world.desired = wanted({"spec.brokers.template": labelled})
        found = plan(world.desired, world.observe(), world.now)
        assert not [a for a in of(found, Apply) if a.manifest["kind"] == "StatefulSet"]
        gone = of(found, DeleteChild)
        assert {a.name for a in gone} == {"demo-s0", "demo-s1"}
        assert all(a.orphan for a in gone)
        world.settle()
        assert not [action for action in world.done if isinstance(action, DeletePod)]

    def test_a_class_that_cannot_grow_keeps_nothing_else_back(self) -> None:
        """Pods get their new template, once: the set that makes them must have it, too."""
        world = ClusterWorld(wanted(), expandable={"": False})
        world.settle()
        world.done.clear()
        world.desired = wanted(self.LARGER | {"spec.image": "mine:2"})
        world.settle()
        restarted = [action.name for action in world.done if isinstance(action, DeletePod)]
        assert set(restarted) == {f"demo-s{n}-{m}" for n in range(2) for m in range(3)}
        assert {
            p.annotations[names.TEMPLATE_HASH] for p in world.pods.values() if p.shard == 0
        } == {ClusterLook(world.desired, world.observe(), world.now).notes(0)[names.TEMPLATE_HASH]}

    def test_a_volume_that_never_grows_keeps_nothing_else_back(self, seen: Observed) -> None:
        claims = tuple(replace(c, requested=20 << 30, capacity=10 << 30) for c in seen.claims)
        slow = replace(seen, claims=claims)
        found = plan(wanted(), slow, START)
        assert (found.row, found.actions) == (PlanRow.STORAGE, ())
        assert found.wait is not None
        assert "Expanding" in reasons(found)
        noted = next(p for p in slow.pods if p.name == "demo-s1-1").annotations
        look = changed(slow, "demo-s1-1", annotations={**noted, names.RESTART: "please"})
        found = plan(wanted(), look, START)
        assert found.row is PlanRow.ROLLOUT
        assert {"Expanding", "ManualRestart"} <= reasons(found)

    def test_what_somebody_made_larger_stays(self, seen: Observed) -> None:
        claims = tuple(replace(c, requested=99 << 30, capacity=99 << 30) for c in seen.claims)
        found = plan(wanted(), replace(seen, claims=claims), START)
        assert (found.row, found.actions) == (PlanRow.SETTLED, ())
        assert "LargerThanSpec" in reasons(found)

    def test_a_file_system_that_waits_for_a_start_gets_one(self, seen: Observed) -> None:
        claims = tuple(
            replace(c, conditions=frozenset({"FileSystemResizePending"})) if c.ordinal == 1 else c
            for c in seen.claims
        )
        found = plan(wanted(), replace(seen, claims=claims), START)
        assert "VolumeResize" in reasons(found)
        actions = [*of(found, DeletePod), *of(found, Handover)]
        assert {getattr(a, "name", None) or a.pod for a in actions} == {"demo-s0-1"}


def test_volumes_that_never_grow_and_a_new_image_restart_every_pod_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The quota refuses every growth: sets are made anew before pods get their template."""
    world = ClusterWorld(wanted())
    world.settle()
    world.done.clear()
    monkeypatch.setattr(ClusterWorld, "_growclaim", lambda *_: None)
    world.desired = wanted({"spec.brokers.storage.size": "20Gi", "spec.image": "mine:2"})
    for _ in range(100):
        world.look()
        world.turn()
    assert sorted(a.name for a in world.done if isinstance(a, DeletePod)) == sorted(
        f"demo-s{s}-{o}" for s in (0, 1) for o in range(3)
    )
    said = {c.type: c.reason for c in world.status.conditions}
    assert said["StorageReady"] == "Expanding"


def test_a_set_without_pods_is_made_anew_though_its_shard_has_no_leader() -> None:
    """Somebody scaled it down, and its claim template is to change: nothing else brings it back."""
    world = ClusterWorld(wanted())
    world.settle()
    world.scale(0, 0)
    world.turn()
    assert world.observe().registry is not None
    world.desired = wanted({"spec.brokers.storage.size": "20Gi"})
    world.settle()
    assert len([pod for pod in world.pods.values() if pod.shard == 0]) == 3


def test_a_shard_that_goes_is_read_out_though_somebody_scaled_it_down() -> None:
    world = ClusterWorld(wanted())
    world.settle()
    world.desired = wanted({"spec.brokers.shards": 1})
    world.look()
    world.scale(1, 0)
    world.settle()
    assert sorted(world.observe().sets()) == [0]
    assert world.shards[1].drained


@pytest.mark.parametrize("away", ["demo-s0-1", "demo-s0-0"])
def test_a_member_too_many_stays_while_one_that_is_to_stay_is_not_there(away: str) -> None:
    world = ClusterWorld(wanted())
    world.settle()
    world.scale(0, 4)
    world.turn()
    world.turn()
    assert "demo-s0-3" in world.pods
    seen = world.observe()
    assert [r for r in fewer(seen) if r < 4] == [3], "all are there"
    lacking = replace(seen, pods=tuple(pod for pod in seen.pods if pod.name != away))
    assert fewer(lacking) == []


def fewer(seen: Observed) -> list[int]:
    """Return how many members shard 0 is to have, where that is changed."""
    found = plan(wanted(), seen, START).actions
    sets = [a.manifest for a in found if isinstance(a, Apply)]
    return [m["spec"]["replicas"] for m in sets if m["metadata"]["name"] == "demo-s0"]
