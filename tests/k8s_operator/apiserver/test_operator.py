"""`imago operator` as a process against a real API server, with the chart's rights and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from imago_operator.kube.resources import RESOURCES
from imago_operator.model import names
from imago_operator.rights import Where, rules
from imago_testing.kubernetes.custom_resources import CLUSTER, TOPIC, manifest
from imago_testing.kubernetes.operator_process import OperatorProcess, running_operator
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.kubernetes.api_server import ApiServerProcess

pytestmark = [pytest.mark.apiserver]

ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces"
SETTLES_S = 60
TOPICS = 1000
STANDS_STILL_S = 180
MEMORY_MAX = 120 << 20
LEASE = "imago-operator"


@pytest.fixture(scope="module")
def namespace(api: ApiServerProcess) -> str:
    """A namespace in which `operator` has what a namespaced installation grants it."""
    name = api.namespace("mq")
    parts = (Where.NAMESPACE, Where.PIPELINES, Where.OWN)
    granted = [rule for part in parts for rule in rules(part)]
    role = {"metadata": {"name": "operator"}, "rules": granted}
    api.must("POST", f"{ROLES}/{name}/roles", role)
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "operator"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "operator"}],
    }
    api.must("POST", f"{ROLES}/{name}/rolebindings", binding)
    return name


Start = Callable[..., OperatorProcess]


@pytest.fixture
def start(api: ApiServerProcess, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Starts operators that work in the namespace alone; they end with the test."""
    with ExitStack() as stack:

        def started(
            name: str = "operator", *, lead: bool = True, lease: str = LEASE
        ) -> OperatorProcess:
            kubeconfig = api.kubeconfig("operator", namespace)
            where = ("--namespaces", namespace, "--lease-namespace", namespace)
            flags = (*where, "--lease-name", lease)
            return stack.enter_context(
                running_operator(tmp_path, kubeconfig, *flags, name=name, lead=lead)
            )

        yield started


@pytest.fixture
def cluster(api: ApiServerProcess, namespace: str) -> Iterator[Callable[[], Any]]:
    """An ImagoCluster; gives what is read of it. Nobody makes pods here, so it never gets ready."""
    path = RESOURCES[CLUSTER].path(namespace)
    made = manifest(CLUSTER)
    api.must("POST", path, {**made, "metadata": {**made["metadata"], "namespace": namespace}})
    yield lambda: api.must("GET", f"{path}/demo")
    api.must("DELETE", f"{path}/demo")
    # Nobody collects garbage here either.
    for kind in ("StatefulSet", "Service", "ConfigMap", "Secret", "PodDisruptionBudget"):
        items = api.must("GET", RESOURCES[kind].path(namespace))["items"]
        for item in items:
            if "imago.dev/cluster" in item["metadata"].get("labels", {}):
                api.must("DELETE", RESOURCES[kind].path(namespace, item["metadata"]["name"]))


def _condition(found: Any, type_: str) -> str:
    conditions = found.get("status", {}).get("conditions", [])
    return next((c["reason"] for c in conditions if c["type"] == type_), "")


def _settled(cluster: Callable[[], Any]) -> None:
    wait_until(
        lambda: _condition(cluster(), "ResourcesApplied") == "Applied",
        seconds_max=SETTLES_S,
        what="all objects are applied",
        poll=0.2,
    )


def test_a_cluster_gets_all_its_objects_without_any_right_on_the_whole_cluster(
    api: ApiServerProcess, namespace: str, start: Start, cluster: Callable[[], Any]
) -> None:
    operator = start()
    _settled(cluster)
    sets = api.must("GET", RESOURCES["StatefulSet"].path(namespace))["items"]
    assert {s["metadata"]["name"] for s in sets} == {"demo-s0", "demo-s1", "demo-zookeeper"}
    assert _condition(cluster(), "Ready") == "BrokersStarting"
    metadata = cluster()["metadata"]
    assert "finalizers" not in metadata
    assert metadata.get("annotations", {}) == {}
    assert operator.get("/healthz")[0] == 200
    assert operator.figure("clusters") == 1
    forbidden = operator.figure("kubernetes_requests_total", 'status="403"')
    facts = ("nodes", "storageclasses", "persistentvolumes")
    asked = sum(
        operator.figure("kubernetes_requests_total", 'status="403"', f'resource="{r}"')
        for r in facts
    )
    assert forbidden == asked  # what it may not see it goes without, and asks for nothing else


def test_an_edit_is_seen_by_the_watch_and_what_somebody_deletes_is_made_again(
    api: ApiServerProcess, namespace: str, start: Start, cluster: Callable[[], Any]
) -> None:
    start()
    _settled(cluster)
    path = RESOURCES[CLUSTER].path(namespace, "demo")
    patch = {"spec": {"brokers": {"shards": 3}}}
    api.must("PATCH", path, patch, content="application/merge-patch+json")
    third = RESOURCES["StatefulSet"].path(namespace, "demo-s2")

    def there() -> bool:
        return api.call("GET", third)[0] == 200

    wait_until(there, seconds_max=SETTLES_S, what="a third shard", poll=0.2)
    old = api.must("GET", third)["metadata"]["uid"]
    api.must("DELETE", third)
    wait_until(
        lambda: there() and api.must("GET", third)["metadata"]["uid"] != old,
        seconds_max=SETTLES_S,
        what="the StatefulSet again",
        poll=0.2,
    )


EDITS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("StatefulSet", "demo-s0", {"spec": {"replicas": 0}}),
    ("Service", "demo-bootstrap", {"spec": {"selector": {"imago.dev/cluster": "other"}}}),
    ("ConfigMap", "demo-zookeeper-config", {"data": {"zoo.cfg": "nonsense"}}),
    ("PodDisruptionBudget", "demo-s1", {"spec": {"maxUnavailable": 3}}),
    ("NetworkPolicy", "demo-brokers", {"spec": {"ingress": []}}),
    ("ServiceAccount", "demo-brokers", {"automountServiceAccountToken": True}),
)


def test_what_somebody_edits_or_deletes_is_put_back_at_once(
    api: ApiServerProcess, namespace: str, start: Start, cluster: Callable[[], Any]
) -> None:
    start()
    _settled(cluster)
    before = {}
    for kind, name, patch in EDITS:
        path = RESOURCES[kind].path(namespace, name)
        before[path] = _said(api.must("GET", path), patch)
        query = "?fieldManager=kubectl-edit"
        api.must("PATCH", path + query, patch, content="application/merge-patch+json")
        wait_until(
            lambda: _said(api.must("GET", path), patch) == before[path],  # noqa: B023  this one
            seconds_max=SETTLES_S,
            what=f"{kind} {name} as it was",
            poll=0.2,
        )

    def told() -> list[str]:
        events = api.must("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return [event["message"] for event in events if event["reason"] == "DriftCorrected"]

    wait_until(lambda: bool(told()), seconds_max=SETTLES_S, what="an event", poll=0.2)
    for kind, name, _ in EDITS:
        if kind in ("StatefulSet", "ServiceAccount"):
            continue
        path = RESOURCES[kind].path(namespace, name)
        old = api.must("GET", path)["metadata"]["uid"]
        api.must("DELETE", path)

        def again(path: str = path, old: str = old) -> bool:
            status, found = api.call("GET", path)
            return status == 200 and found["metadata"]["uid"] != old

        wait_until(again, seconds_max=SETTLES_S, what=f"{kind} {name} again", poll=0.2)


def _said(found: Any, patch: Any) -> Any:
    """Return what an object has where a patch would change it."""
    if not isinstance(patch, dict):
        return found
    return {key: _said((found or {}).get(key), part) for key, part in patch.items()}


def test_what_others_add_is_theirs_and_a_new_operator_applies_nothing(
    api: ApiServerProcess, namespace: str, start: Start, cluster: Callable[[], Any]
) -> None:
    """Kubernetes fills in defaults, a rollout is ordered, a label is added: nothing has drifted."""
    first = start("first")
    _settled(cluster)
    assert first.process.stop() == 0
    noted = {"kubectl.kubernetes.io/restartedAt": "now"}
    template = {"template": {"metadata": {"annotations": noted}}}
    patch = {"metadata": {"labels": {"team": "orders"}}, "spec": template}
    path = RESOURCES["StatefulSet"].path(namespace, "demo-s0")
    api.must("PATCH", path, patch, content="application/strategic-merge-patch+json")
    second = start("second")
    wait_until(
        lambda: second.figure("reconcile_total", 'kind="ImagoCluster"') >= 2,
        seconds_max=SETTLES_S,
        what="two looks",
        poll=0.2,
    )
    applied = [
        labels
        for labels, count in second.writes().items()
        if count and not any(word in labels for word in ("leases", "events", "status", "imago"))
    ]
    assert applied == []
    found = api.must("GET", path)
    assert found["metadata"]["labels"]["team"] == "orders"
    assert (
        found["spec"]["template"]["metadata"]["annotations"] | noted
        == (found["spec"]["template"]["metadata"]["annotations"])
    )


def test_a_paused_cluster_is_left_alone_until_it_goes_on(
    api: ApiServerProcess, namespace: str, start: Start, cluster: Callable[[], Any]
) -> None:
    start()
    _settled(cluster)
    path = RESOURCES[CLUSTER].path(namespace, "demo")

    def edit(patch: dict[str, Any]) -> None:
        api.must("PATCH", path, patch, content="application/merge-patch+json")

    def is_paused() -> bool:
        found = cluster()
        seen = found["status"]["observedGeneration"] == found["metadata"]["generation"]
        return seen and _condition(found, "Paused") == "Annotation"

    edit({"metadata": {"annotations": {names.PAUSE: "true"}}})
    wait_until(is_paused, seconds_max=SETTLES_S, what="the pause is seen", poll=0.2)
    edit({"spec": {"brokers": {"shards": 3}}})
    wait_until(is_paused, seconds_max=SETTLES_S, what="the edit is seen", poll=0.2)
    third = RESOURCES["StatefulSet"].path(namespace, "demo-s2")
    assert api.call("GET", third)[0] == 404
    edit({"metadata": {"annotations": {names.PAUSE: None, names.RESTART: "now"}}})
    wait_until(
        lambda: api.call("GET", third)[0] == 200,
        seconds_max=SETTLES_S,
        what="the third shard",
        poll=0.2,
    )
    template = api.must("GET", third)["spec"]["template"]["metadata"]["annotations"]
    assert template[names.RESTART] == "now"


def test_idle_it_writes_nothing_but_the_lease(
    api: ApiServerProcess, namespace: str, start: Start
) -> None:
    topic = manifest(TOPIC, name="idle")
    path = RESOURCES[TOPIC].path(namespace)
    api.must("POST", path, {**topic, "metadata": {"name": "idle", "namespace": namespace}})
    operator = start()
    wait_until(
        lambda: operator.figure("reconcile_total", 'kind="ImagoTopic"') >= 2,
        seconds_max=SETTLES_S,
        what="the topic is looked at, also after its status was written",
        poll=0.2,
    )
    lease = 'resource="leases"'
    before = {k: v for k, v in operator.writes().items() if lease not in k}
    renewals = operator.figure("kubernetes_requests_total", 'verb="update"', lease)
    wait_until(
        lambda: (
            operator.figure("kubernetes_requests_total", 'verb="update"', lease) >= renewals + 5
        ),
        seconds_max=SETTLES_S,
        what="five renewals of the lease",
        poll=0.5,
    )
    assert {k: v for k, v in operator.writes().items() if lease not in k} == before
    api.must("DELETE", f"{path}/idle")


def _more(told: Callable[[], int], before: int) -> bool:
    return told() > before


@pytest.mark.timeout(1200)
def test_a_thousand_topics_are_all_worked_on(
    api: ApiServerProcess, namespace: str, start: Start
) -> None:
    path = RESOURCES[TOPIC].path(namespace)
    for number in range(TOPICS):
        topic = manifest(TOPIC, {"spec.topicName": f"t{number}"})
        metadata = {"name": f"t{number}", "namespace": namespace}
        api.must("POST", path, {**topic, "metadata": metadata})
    operator = start()

    def told() -> int:
        items = api.must("GET", path)["items"]
        return sum(_condition(item, "Ready") == "ClusterNotFound" for item in items)

    # All of it is the processors' time, a minute of it: a busy machine may take long for that, but
    # as long as one more is told, the work goes on.
    before = 0
    while before < TOPICS:
        wait_until(
            partial(_more, told, before),
            seconds_max=STANDS_STILL_S,
            what=f"another topic than {before} of {TOPICS} says what it lacks",
            poll=2,
        )
        before = told()
    assert psutil.Process(operator.process.pid).memory_info().rss < MEMORY_MAX
    api.must("DELETE", path)


def test_one_works_and_the_next_takes_over_when_it_ends(
    api: ApiServerProcess, namespace: str, start: Start
) -> None:
    first = start("first")
    second = start("second", lead=False)
    assert not second.leads
    assert first.process.stop() == 0
    wait_until(lambda: second.leads, seconds_max=60, what="the second works", poll=0.2)
    lease = api.must("GET", RESOURCES["Lease"].path(namespace, "imago-operator"))
    assert lease["spec"]["holderIdentity"] == "second"


def test_one_that_was_stopped_for_a_while_ends_when_it_goes_on(start: Start) -> None:
    first = start("first")
    second = start("second", lead=False)
    first.pause()
    wait_until(lambda: second.leads, seconds_max=60, what="the second works", poll=0.5)
    first.resume()
    assert first.wait(30) == 5


def test_a_second_installation_leaves_alone_what_the_first_has_taken_up(
    api: ApiServerProcess, namespace: str, start: Start, cluster: Callable[[], Any]
) -> None:
    first = start("first")
    _settled(cluster)
    assert cluster()["status"]["operatedBy"] == f"{namespace}/{LEASE}"
    second = start("second", lease="another")

    def warned() -> bool:
        events = api.must("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return any(event["reason"] == "OperatedByAnother" for event in events)

    wait_until(warned, seconds_max=SETTLES_S, what="the second says so", poll=0.2)
    written = [labels for labels, count in second.writes().items() if count]
    assert all("leases" in labels or "events" in labels for labels in written), written

    assert first.process.stop() == 0
    wait_until(
        lambda: cluster()["status"]["operatedBy"] == f"{namespace}/another",
        seconds_max=SETTLES_S,
        what="the second takes over",
        poll=0.5,
    )


def test_what_keeps_it_from_beginning_is_said(api: ApiServerProcess, tmp_path: Path) -> None:
    from imago_testing.processes.servers import ProcessFailedError

    with (
        pytest.raises(ProcessFailedError, match=r"may not list and watch imagoclusters in default"),
        running_operator(tmp_path, api.kubeconfig("nobody"), "--namespaces", "default"),
    ):
        pass
