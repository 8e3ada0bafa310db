"""`kubectl imago plan`: what an edit would bring about, and what the operator then does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.kubectl.planning.edit import edit_of
from imago_operator.model import names
from imago_operator.model.actions import (
    Apply,
    DeleteChild,
    DeleteClaim,
    DeletePod,
    Hibernate,
    SetConfig,
)
from imago_operator.plan import plan
from imago_operator.plan.objects import ZONE
from imago_operator.spec.schema.fields import to_json
from imago_testing.kubernetes.custom_resources import TOPIC, manifest
from imago_testing.operated.edits import EDITS
from imago_testing.operated.objects import answers_of, objects_of
from imago_testing.operated.resources import OPERATOR, resource, wanted
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_testing.kubernetes.plugin import Kube

CLUSTERS = "imagoclusters.imago.dev"


def settled() -> ClusterWorld:
    world = ClusterWorld(wanted())
    world.settle()
    return world


def there(world: ClusterWorld) -> dict[str, Any]:
    """The cluster as the server has it."""
    return {**resource(), "status": to_json(world.status)}


def effects(before: dict[str, Any], changes: dict[str, Any]) -> list[tuple[str, str]]:
    edit = edit_of(before, resource(changes), OPERATOR)
    assert not isinstance(edit, str)
    return [(one.what, one.about) for one in edit.effects()]


def _moved(world: ClusterWorld, told: list[tuple[str, str]]) -> set[int]:
    """Return the shards whose members got other claims, as that was told."""
    moved = {one.shard for one in world.done if isinstance(one, DeleteClaim)}
    assert bool(moved) is ("MoveMembers" in {what for what, _ in told})
    return moved


@pytest.mark.parametrize("changes", EDITS, ids=str)
def test_what_is_announced_is_what_is_done(changes: dict[str, Any]) -> None:
    """For each edit, the model's operator restarts, sets, applies and deletes what was told."""
    world = settled()
    told = effects(there(world), changes)
    world.done.clear()
    world.desired = wanted(changes)
    policy = changes.get("spec.updatePolicy", {})
    if policy.get("mode") == "Manual":
        world.look()
    else:
        world.settle()
    done = world.done
    restarted = {pod.shard for pod in done if isinstance(pod, DeletePod)}
    announced = {
        int(about[6]) if about.startswith("shard-") else None  # as pods of ZooKeeper have none
        for what, about in told
        if what == "Restart"
    }
    restarted -= _moved(world, told)
    assert restarted == (set() if policy.get("mode") == "Manual" else announced)
    set_now = {name for one in done if isinstance(one, SetConfig) for name in one.values}
    set_now.discard(ZONE)  # no part of an edit: a pod that starts is told where it is
    assert set_now == {about.split(":")[0] for what, about in told if what == "SetConfig"}
    manifests: list[Any] = [one.manifest for one in done if isinstance(one, Apply)]
    applied = {f"{one['kind']} {one['metadata']['name']}" for one in manifests}
    changed = {about for what, about in told if what == "Apply"}
    # What stops has what is new by that.
    stopped: list[Any] = [one.manifest for one in done if isinstance(one, Hibernate)]
    applied |= changed & {f"{one['kind']} {one['metadata']['name']}" for one in stopped}
    assert bool(stopped) is ("Hibernate" in {what for what, _ in told})
    # Until somebody approves it, a new template is on one shard.
    assert applied <= changed if policy.get("mode") == "Manual" else applied == changed
    ended = [one for one in done if isinstance(one, DeleteChild) and not names.is_config(one.name)]
    gone = {f"{one.kind} {one.name}" for one in ended}
    made_anew = {name for name in gone if name.startswith("StatefulSet")}
    assert gone - made_anew == {about for what, about in told if what == "DeleteChild"}
    assert made_anew == {about for what, about in told if what == "MakeAnew"}


def test_servers_of_zookeeper_wait_for_an_approval_like_brokers() -> None:
    changes = {**EDITS[-1], "spec.updatePolicy": {"mode": "Manual"}}
    edit = edit_of(there(settled()), resource(changes), OPERATOR)
    assert not isinstance(edit, str)
    told = [one for one in edit.effects() if one.what == "Restart"]
    assert any("ZooKeeper" in one.about for one in told)
    assert all("kubectl imago approve" in one.how for one in told)


def test_shards_that_come_and_go_are_named() -> None:
    before = there(settled())
    assert ("AddShards", "1 to 2") in effects(before, {"spec.brokers.shards": 3})
    assert ("RemoveShard", "shard-1") in effects(before, {"spec.brokers.shards": 1})
    named = {"spec.brokers.shards": 1, "spec.brokers.removeShards": [0]}
    assert ("RemoveShard", "shard-0") in effects(before, named)


@pytest.fixture(name="world")
def _world(kube: Kube) -> ClusterWorld:
    """A cluster with nothing to do, as kubectl shows it."""
    world = settled()
    kube.objects |= objects_of(world) | {CLUSTERS: [there(world)]}
    kube.brokers = answers_of(world)
    return world


@pytest.mark.usefixtures("world")
class TestNextLook:
    """What the operator would do next is what it does: the same functions on the same facts."""

    def test_a_version_that_the_operator_does_not_run_has_no_effects(self, kube: Kube) -> None:
        kube.dry_run = [resource({"spec.version": "1.1.4"})]
        done = kube.run("plan", "-f", "edit.yaml")
        assert (done.code, "the operator refuses it: " in done.out) == (1, True)
        assert "1.1.4" in done.out
        assert "Restart" not in done.out

    @pytest.mark.parametrize("changes", [EDITS[n] for n in (1, 3, 7, 10)], ids=str)
    @pytest.mark.full
    def test_it_is_the_operators_own_plan(
        self, kube: Kube, world: ClusterWorld, changes: dict[str, Any]
    ) -> None:
        kube.dry_run = [resource(changes)]
        (told,) = json.loads(kube.run("plan", "-f", "x", "-o", "json").out)
        assert told["unseen"] == []
        expected = plan(wanted(changes), world.observe(), world.now)
        assert told["plan"]["row"] == expected.row.title
        named = [one["action"] for one in told["plan"]["actions"]]
        assert named == [type(one).__name__ for one in expected.actions]
        assert not any(one["anyway"] for one in told["plan"]["actions"])

    def test_what_would_happen_anyway_is_marked(self, kube: Kube) -> None:
        gone = kube.objects["poddisruptionbudgets.policy"].pop()
        kube.dry_run = [resource({"spec.networkPolicy": {"enabled": False}})]
        (told,) = json.loads(kube.run("plan", "-f", "x", "-o", "json").out)
        anyway = {one["about"]: one["anyway"] for one in told["plan"]["actions"]}
        assert anyway.pop(f"PodDisruptionBudget {gone['metadata']['name']}") is True
        assert anyway
        assert not any(anyway.values())

    def test_brokers_that_do_not_answer_are_told(self, kube: Kube) -> None:
        del kube.brokers["demo-s1-0"]
        kube.dry_run = [resource({"spec.image": "mine:2"})]
        done = kube.run("plan", "-f", "x")
        assert done.code == 0
        assert "not seen: demo-s1-0: Error from server" in done.out

    def test_what_the_caller_may_not_see_is_told(self, kube: Kube) -> None:
        forbidden = "Error from server (Forbidden): no"
        kube.refusals |= {"get nodes": forbidden, "get storageclasses": forbidden}
        kube.refusals |= {"get secrets": forbidden, "get deployments": forbidden}
        kube.dry_run = [resource({"spec.image": "mine:2"})]
        (told,) = json.loads(kube.run("plan", "-f", "x", "-o", "json").out)
        text = "; ".join(told["unseen"])
        assert all(part in text for part in ("Node", "StorageClass", "Secret", "images"))
        assert "CreateToken" not in {one["action"] for one in told["plan"]["actions"]}

    def test_the_operator_of_the_namespace_is_asked_for_its_images(self, kube: Kube) -> None:
        """Of several, the one that names the namespace; its ZooKeeper is another one."""
        (usual,) = kube.objects["deployments.apps"]
        other = json.loads(json.dumps(usual))
        container = other["spec"]["template"]["spec"]["containers"][0]
        container["args"] = ["operator", "--namespaces=a,mq"]
        container["env"] = [{"name": "IMAGO_OPERATOR_ZOOKEEPER_IMAGE", "value": "mine:1"}]
        elsewhere = json.loads(json.dumps(other))
        elsewhere["spec"]["template"]["spec"]["containers"][0]["args"][1] = "--namespaces=b"
        kube.objects["deployments.apps"] = [elsewhere, usual, other]
        kube.dry_run = [resource()]
        (told,) = json.loads(kube.run("plan", "-f", "x", "-o", "json").out)
        assert "StatefulSet demo-zookeeper" in {one["about"] for one in told["plan"]["actions"]}
        kube.objects["deployments.apps"] = [elsewhere, usual]
        (told,) = json.loads(kube.run("plan", "-f", "x", "-o", "json").out)
        assert told["plan"]["actions"] == []

    def test_what_must_be_seen_is_an_error(self, kube: Kube) -> None:
        kube.refusals["get statefulsets"] = "Error from server (Forbidden): no"
        kube.dry_run = [resource()]
        done = kube.run("plan", "-f", "x")
        assert (done.code, "cannot be read" in done.err) == (1, True)

    def test_a_secret_is_never_read(self, kube: Kube) -> None:
        kube.dry_run = [resource()]
        kube.run("plan", "-f", "x")
        asked = [call for call in kube.calls() if "secrets" in call]
        assert asked
        assert all("jsonpath={.metadata}" in call for call in asked)


@pytest.mark.usefixtures("world")
class TestCommand:
    def test_an_edit_is_shown(self, kube: Kube) -> None:
        kube.dry_run = [resource({"spec.image": "mine:2", "spec.logging": {"level": "debug"}})]
        done = kube.run("plan", "-f", "new.yaml")
        assert (done.code, done.err) == (0, "")
        assert "shard-0: 3 pods" in done.out
        assert "one by one, at once" in done.out
        assert ["apply", "--dry-run=server", "-f", "new.yaml", "-o", "json"] in kube.calls()

    def test_an_edit_that_changes_nothing(self, kube: Kube) -> None:
        kube.dry_run = kube.objects[CLUSTERS]
        done = kube.run("plan", "-f", "x")
        assert "nothing would change" in done.out
        assert "case 25 Settled, and do nothing" in done.out
        assert "not seen" not in done.out

    def test_a_new_cluster(self, kube: Kube) -> None:
        kube.objects[CLUSTERS] = []
        kube.dry_run = [resource()]
        (told,) = json.loads(kube.run("plan", "-f", "x", "-o", "json").out)
        assert told["effects"][0]["what"] == "CreateCluster"
        assert "CreateToken" in {one["action"] for one in told["plan"]["actions"]}

    def test_what_admission_refuses_is_an_error_in_its_words(self, kube: Kube) -> None:
        kube.refusals["--dry-run=server"] = "The ImagoCluster is invalid: may not shrink"
        done = kube.run("plan", "-f", "x")
        assert (done.code, "may not shrink" in done.err) == (1, True)

    def test_what_only_the_operator_refuses_is_told(self, kube: Kube) -> None:
        kube.dry_run = [resource({"spec.brokers.config": {"store.no_such_key": 1}})]
        done = kube.run("plan", "-f", "x")
        assert (done.code, "no such setting" in done.out) == (1, True)

    def test_other_kinds_are_only_admitted(self, kube: Kube) -> None:
        kube.dry_run = [manifest(TOPIC)]
        done = kube.run("plan", "-f", "x")
        assert (done.code, "not seen" in done.out) == (0, True)
