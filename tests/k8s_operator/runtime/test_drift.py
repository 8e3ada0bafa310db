"""What people change of the operator's objects is put back, gently, and without a fight."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.model import names
from imago_operator.model.actions import DeletePod
from imago_testing.kubernetes.copying import copied
from imago_testing.kubernetes.custom_resources import CLUSTER, manifest
from imago_testing.operated.cluster import OperatedCluster

if TYPE_CHECKING:
    from imago_testing.kubernetes.fake_api_server import Call


class Meddled(OperatedCluster):
    """A cluster that runs, with somebody who changes its objects, and a record of events."""

    def __post_init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        super().__post_init__()

    def start(self) -> None:
        super().start()
        self.reconciler._kube.event = self._note  # type: ignore[method-assign,assignment]

    async def _note(self, _: object, __: str, reason: str, message: str) -> None:
        self.told.append((reason, message))

    def meddle(
        self, kind: str, name: str, path: tuple[str, ...], value: object, by: str = "kubectl-edit"
    ) -> None:
        """Change a field as somebody does who knows nothing of the operator; None: it goes."""
        found = copied(self.object(kind, name))
        node = found
        for key in path[:-1]:
            node = node.setdefault(key, {})
        if value is None:
            del node[path[-1]]
        else:
            node[path[-1]] = value
        self.kubernetes.put(found, by=by)
        self._take_in("MODIFIED", found)

    def object(self, kind: str, name: str) -> dict[str, Any]:
        found = self.kubernetes.find(kind, "mq", name)
        assert found is not None
        return found

    def drifts(self) -> list[str]:
        return [message for reason, message in self.told if reason == "DriftCorrected"]

    def look_for(self, looks: int) -> None:
        async def often() -> None:
            for _ in range(looks):
                await self.look()

        asyncio.run(often())


@pytest.fixture(name="made")
def _made() -> Meddled:
    found = manifest(CLUSTER, {"spec.brokers.shards": 1})
    found["metadata"]["namespace"] = "mq"
    made = Meddled(found)
    made.run()
    made.told.clear()
    return made


REPLICAS = ("spec", "replicas")
BUDGET = ("spec", "maxUnavailable")
GRACE = ("spec", "template", "spec", "terminationGracePeriodSeconds")
LABEL = "app.kubernetes.io/part-of"
EDITS: dict[str, tuple[str, str, tuple[str, ...], object]] = {
    "a Service's selector": (
        *("Service", "demo-bootstrap"),
        *(("spec", "selector", names.CLUSTER_LABEL), "other"),
    ),
    "a budget": ("PodDisruptionBudget", "demo-s0", ("spec", "maxUnavailable"), 3),
    "a policy": ("NetworkPolicy", "demo-brokers", ("spec", "ingress"), []),
    "a file": ("ConfigMap", "demo-zookeeper-config", ("data", "zoo.cfg"), "nonsense"),
    "a file that is gone": ("ConfigMap", "demo-zookeeper-config", ("data", "zoo.cfg"), None),
    "a label": ("StatefulSet", "demo-s0", ("metadata", "labels", LABEL), "else"),
    "a template": (
        *("StatefulSet", "demo-s0"),
        *(("spec", "template", "spec", "terminationGracePeriodSeconds"), 1),
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_put_back_at_once_and_told(made: Meddled, name: str) -> None:
    kind, object_, path, value = EDITS[name]
    before = copied(_at(made.object(kind, object_), path))
    pods = {pod.uid for pod in made.world.pods.values()}
    assert before not in (None, value)
    made.meddle(kind, object_, path, value)
    made.look_for(3)
    assert _at(made.object(kind, object_), path) == before
    (told,) = made.drifts()
    assert told.startswith(f"{kind} {object_}: {path[0]}.")
    was = "nothing" if value is None else json.dumps(value)
    # Of what has gone beside others that stay nobody is named.
    who = "" if value is None else " by kubectl-edit"
    assert f" was {was}{who}, and is " in told
    assert {pod.uid for pod in made.world.pods.values()} == pods
    made.run()
    assert made.condition("Ready") == ("True", "AllShardsServing")


def _at(node: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        node = node.get(key)
    return node


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("PodDisruptionBudget", "demo-s0"),
        ("Service", "demo-bootstrap"),
        ("StatefulSet", "demo-zookeeper"),
    ],
)
def test_what_is_deleted_comes_back(made: Meddled, kind: str, name: str) -> None:
    made.kubernetes.drop(kind, "mq", name)
    made.look_for(2)
    assert made.kubernetes.find(kind, "mq", name)


def test_a_set_that_was_scaled_down_gets_its_pods_back(made: Meddled) -> None:
    made.meddle("StatefulSet", "demo-s0", REPLICAS, 0, by="kubectl-scale")
    made.turn()
    assert not [pod for pod in made.world.pods.values() if pod.shard == 0]
    made.look_for(1)
    assert made.object("StatefulSet", "demo-s0")["spec"]["replicas"] == 3
    assert made.drifts() == [
        "StatefulSet demo-s0: spec.replicas was 0 by kubectl-scale, and is 3 again."
    ]
    made.run()
    assert made.condition("Ready") == ("True", "AllShardsServing")


def test_members_that_somebody_added_go_one_by_one(made: Meddled) -> None:
    made.meddle("StatefulSet", "demo-s0", REPLICAS, 5, by="hpa")
    for _ in range(3):
        made.turn()
    seen = []
    for _ in range(20):
        made.look_for(1)
        seen.append(made.object("StatefulSet", "demo-s0")["spec"]["replicas"])
    assert [n for i, n in enumerate(seen) if i == 0 or seen[i - 1] != n] == [4, 3]
    made.run()
    assert len([p for p in made.world.pods.values() if p.shard == 0]) == 3


def test_what_others_add_is_theirs(made: Meddled) -> None:
    """`kubectl rollout restart`, a mesh, an extra label: no write, no event."""
    made.meddle("StatefulSet", "demo-s0", ("metadata", "labels", "a"), "b")
    noted = ("spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")
    made.meddle("StatefulSet", "demo-s0", noted, "now")
    made.meddle("ConfigMap", "demo-zookeeper-config", ("data", "more"), "words")
    before = [call for call in made.kubernetes.writes if call.sub != "status"]
    made.look_for(20)
    assert [call for call in made.kubernetes.writes if call.sub != "status"] == before
    assert made.drifts() == []
    assert "a" in made.object("StatefulSet", "demo-s0")["metadata"]["labels"]


ORDERS: dict[str, dict[str, Any]] = {
    "TLS": {"tls": {"clients": "Enforcing"}},
    "authorization": {"authorization": {"type": "Simple"}},
    "a listener": {"listeners": [{"name": "out", "type": "NodePort", "firstNodePort": 30900}]},
    "pods with more": {
        "brokers": {"template": {"container": {"env": [{"name": "TZ", "value": "UTC"}]}}}
    },
}


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_ordered_has_not_drifted(made: Meddled, order: str) -> None:
    """What an object has anew is nobody's yet: nobody has taken it away."""
    made.edit(**ORDERS[order])
    made.run()
    assert made.drifts() == []


def test_an_edit_is_told_though_something_is_ordered_beside_it(made: Meddled) -> None:
    made.meddle("StatefulSet", "demo-s0", GRACE, 1)
    made.edit(tls={"clients": "Permissive"})
    made.run()
    (told,) = made.drifts()
    assert told.startswith(f"StatefulSet demo-s0: {'.'.join(GRACE)} was 1 by kubectl-edit")


@pytest.mark.full
def test_with_somebody_who_insists_there_is_no_fight(made: Meddled) -> None:
    """Writes are bounded: ten minutes of somebody who changes it every second."""
    writes = len([c for c in made.kubernetes.writes if c.plural == "poddisruptionbudgets"])
    for _ in range(600):
        made.meddle("PodDisruptionBudget", "demo-s0", BUDGET, 2, by="robot")
        made.look_for(1)
    found = [c for c in made.kubernetes.writes if c.plural == "poddisruptionbudgets"]
    assert 3 <= len(found) - writes <= 8
    made.look_for(320)
    assert made.object("PodDisruptionBudget", "demo-s0")["spec"]["maxUnavailable"] == 1


@pytest.mark.full
def test_a_field_that_never_stays_is_tried_once(made: Meddled) -> None:
    """A server that drops a field, a webhook that changes it: the next operator tries again."""

    def changes(call: Call) -> None:
        if call.plural == "poddisruptionbudgets" and call.verb == "patch":
            found = copied(made.object("PodDisruptionBudget", "demo-s0"))
            found["spec"]["maxUnavailable"] = 2
            made.kubernetes.put(found, by="webhook")

    made.kubernetes.after = changes
    made.meddle("PodDisruptionBudget", "demo-s0", BUDGET, 2)
    made.look_for(60)
    written = [c for c in made.kubernetes.writes if c.plural == "poddisruptionbudgets"]
    made.look_for(600)
    after = [c for c in made.kubernetes.writes if c.plural == "poddisruptionbudgets"]
    assert len(after) - len(written) <= 3


def test_a_new_operator_writes_nothing_where_nothing_drifted(made: Meddled) -> None:
    before = len([call for call in made.kubernetes.writes if call.sub != "status"])
    made.start()
    made.run()
    assert len([c for c in made.kubernetes.writes if c.sub != "status"]) == before


def test_an_edit_while_no_operator_ran_is_found(made: Meddled) -> None:
    made.meddle("PodDisruptionBudget", "demo-s0", BUDGET, 3)
    made.start()
    made.run()
    assert made.object("PodDisruptionBudget", "demo-s0")["spec"]["maxUnavailable"] == 1


def test_a_field_that_is_fought_for_is_named_in_the_status(made: Meddled) -> None:
    assert made.condition("DriftContested") is None
    made.meddle("PodDisruptionBudget", "demo-s0", BUDGET, 2, by="robot")
    made.look_for(3)
    assert made.condition("DriftContested") is None, "one edit is no fight"
    made.meddle("PodDisruptionBudget", "demo-s0", BUDGET, 2, by="robot")
    made.look_for(10)
    assert made.condition("DriftContested") == ("True", "ChangedAgain")
    (told,) = [message for reason, message in made.told if reason == "ChangedAgain"]
    assert told == ("PodDisruptionBudget demo-s0: spec.maxUnavailable is 2 again by robot, not 1.")
    made.look_for(60)
    assert made.object("PodDisruptionBudget", "demo-s0")["spec"]["maxUnavailable"] == 1
    assert made.condition("DriftContested") is None


def made_of_an_edited_template(made: Meddled, path: tuple[str, ...], value: object) -> list[str]:
    """Have two pods of a shard come up from an edited template while no operator looks."""
    made.meddle("StatefulSet", "demo-s0", path, value)
    for name in ("demo-s0-0", "demo-s0-2"):
        pod = made.world.pods[name]
        made.world.do(DeletePod(name, pod.uid, pod.shard, "by somebody"))
        made.kubernetes.drop("Pod", "mq", name)
        for _ in range(30):
            made.turn()
    return sorted(pod.uid for pod in made.world.pods.values())


def test_pods_of_an_edited_template_are_made_anew_one_by_one(made: Meddled) -> None:
    before = made_of_an_edited_template(made, GRACE, 1)
    assert _at(made.object("StatefulSet", "demo-s0"), GRACE) == 1
    made.run()
    after = {pod.name: pod.uid for pod in made.world.pods.values()}
    assert sorted(name for name, uid in after.items() if uid not in before) == [
        "demo-s0-0",
        "demo-s0-2",
    ]
    today = made.object("StatefulSet", "demo-s0")["status"]["updateRevision"]
    assert {made.made_of[after[f"demo-s0-{n}"]] for n in range(3)} == {today}
    told = [message for reason, message in made.told if reason == "DeletePod"]
    assert len(told) == 2
    assert all("TemplateEdited" in message for message in told)
    assert made.condition("Ready") == ("True", "AllShardsServing")


def test_what_others_add_to_a_template_restarts_nobody(made: Meddled) -> None:
    noted = ("spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")
    made.meddle("StatefulSet", "demo-s0", noted, "now")
    added = ("spec", "template", "spec", "schedulerName")
    before = made_of_an_edited_template(made, added, "mine")
    made.run()
    made.look_for(30)
    assert sorted(pod.uid for pod in made.world.pods.values()) == before
