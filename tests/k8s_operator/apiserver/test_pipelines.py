"""Which engine runs a pipeline, on a real API server without and with kubeflow's kinds.

The kinds alone are there, as whoever's installation brings them: under which name, and in which
namespace, somebody's spark-operator runs is none of the controller's business.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from rig.build import spark_definitions

from imago_operator.kube.credentials import from_file
from imago_operator.kube.http import ApiServer
from imago_operator.kube.objects import Kubernetes
from imago_operator.kube.resources import RESOURCES
from imago_operator.pipelines.state import PipelineRecord
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.pipeline import PipelineReconciler
from imago_operator.spec.kinds import PIPELINE
from imago_testing.kubernetes.custom_resources import CLUSTER, USER, manifest
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imago_testing.kubernetes.api_server import ApiServerProcess

pytestmark = [pytest.mark.apiserver]

NAMESPACE = "pipes"
SPARK = "SparkApplication"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LOOKS = 3
SERVED_S = 60


class Brokers:
    """Those of a cluster that lets every run write."""

    async def record(self, brokers: Sequence[str], name: str) -> PipelineRecord:  # noqa: ARG002  any
        return PipelineRecord(epoch=0, rows=None, lag=None)

    async def raise_pipeline(
        self,
        brokers: Sequence[str],
        name: str,
        epoch: int,
        *,
        operator_epoch: int,
    ) -> None:
        pass


@pytest.fixture(scope="module")
def namespace(api: ApiServerProcess) -> str:
    """A namespace with a cluster and with the account that pipelines run as."""
    name = api.namespace(NAMESPACE)
    account = {"metadata": {"name": "imago-spark"}}
    api.must("POST", RESOURCES["ServiceAccount"].path(name), account)
    put(api, manifest(CLUSTER))
    return name


@pytest.fixture
def kinds_of_kubeflow(api: ApiServerProcess) -> Iterator[None]:
    """Kubeflow's kinds without anybody who looks after them."""
    paths = spark_definitions()
    assert len(paths) > 1
    api.install_crds(paths)
    _until(api, 200)
    yield
    for item in api.must("GET", DEFINITIONS)["items"]:
        if item["spec"]["group"] == "sparkoperator.k8s.io":
            api.must("DELETE", f"{DEFINITIONS}/{item['metadata']['name']}")
    _until(api, 404)


def _until(api: ApiServerProcess, status: int) -> None:
    """Wait until runs are served, or no more: meanwhile a server asks to come again."""
    for kind in (SPARK, f"Scheduled{SPARK}"):
        path, what = RESOURCES[kind].path(NAMESPACE), f"lists of {kind} are answered by {status}"
        wait_until(partial(_answers, api, path, status), seconds_max=SERVED_S, what=what, poll=0.2)


def _answers(api: ApiServerProcess, path: str, status: int) -> bool:
    return api.call("GET", path)[0] == status


def put(api: ApiServerProcess, made: dict[str, Any]) -> None:
    metadata = {**made["metadata"], "namespace": NAMESPACE}
    api.must("POST", RESOURCES[made["kind"]].path(NAMESPACE), {**made, "metadata": metadata})


def looked_at(api: ApiServerProcess, name: str) -> dict[str, Any]:
    """Have the controller look at a pipeline a few times; return its status."""

    async def inside() -> None:
        async with ApiServer(from_file(api.kubeconfig())) as session:
            stage = Stage(pipelines=Brokers())
            context = stage.context(kube=Kubernetes(session))
            reconciler = PipelineReconciler(context)
            for _ in range(LOOKS):
                await reconciler.reconcile(ObjectKey(PIPELINE.name, NAMESPACE, name))

    asyncio.run(inside())
    found = api.must("GET", RESOURCES[PIPELINE.name].path(NAMESPACE, name))
    status: dict[str, Any] = found["status"]
    return status


def runs(api: ApiServerProcess, kind: str, name: str) -> list[dict[str, Any]]:
    items = api.must("GET", RESOURCES[kind].path(NAMESPACE))["items"]
    return [one for one in items if one["metadata"]["name"].startswith(f"{name}-run-")]


def reason(status: dict[str, Any]) -> str:
    return next(str(c["reason"]) for c in status["conditions"] if c["type"] == "Ready")


def test_without_the_kind_spark_submit_runs_it(api: ApiServerProcess, namespace: str) -> None:
    assert api.call("GET", RESOURCES[SPARK].path(namespace))[0] == 404
    put(api, manifest(PIPELINE.name, {}, "plain"))
    status = looked_at(api, "plain")
    assert (reason(status), status["engineRef"]["kind"]) == ("Starting", "Job")
    assert len(runs(api, "Job", "plain")) == 1


def test_a_pipeline_s_own_user_is_made_and_goes_with_it(
    api: ApiServerProcess, namespace: str
) -> None:
    put(api, manifest(PIPELINE.name, {"spec.user": {}}, "closed"))
    assert reason(looked_at(api, "closed")) == "UserNotReady"
    path = RESOURCES[USER].path(namespace, "closed-pipeline")
    made = api.must("GET", path)
    pipeline = api.must("GET", RESOURCES[PIPELINE.name].path(namespace, "closed"))
    assert made["metadata"]["ownerReferences"][0]["uid"] == pipeline["metadata"]["uid"]
    assert made["spec"]["userName"] == f"{NAMESPACE}.closed"
    ready = {"type": "Ready", "status": "True", "reason": "InSync", "message": ""}
    moments = {"lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1}
    status = {
        "observedGeneration": made["metadata"]["generation"],
        "secretName": "closed-pipeline",
        "conditions": [ready | moments],
    }
    api.must("PUT", f"{path}/status", made | {"status": status})
    assert reason(looked_at(api, "closed")) == "Starting"
    (run,) = runs(api, "Job", "closed")
    volumes = {one["name"]: one for one in run["spec"]["template"]["spec"]["volumes"]}
    assert volumes["credentials"]["secret"]["secretName"] == "closed-pipeline"
    edited = {**pipeline, "spec": {k: v for k, v in pipeline["spec"].items() if k != "user"}}
    kept = api.must("GET", RESOURCES[PIPELINE.name].path(namespace, "closed"))
    edited["metadata"] = {
        **edited["metadata"],
        "resourceVersion": kept["metadata"]["resourceVersion"],
    }
    api.must("PUT", RESOURCES[PIPELINE.name].path(namespace, "closed"), edited)
    looked_at(api, "closed")
    looked_at(api, "closed")
    assert api.call("GET", path)[0] == 404


def test_what_asks_for_the_kind_says_that_it_lacks_and_begins_once_it_is_there(
    api: ApiServerProcess, namespace: str, request: pytest.FixtureRequest
) -> None:
    put(api, manifest(PIPELINE.name, {"spec.engine": "SparkOperator"}, "wanted"))
    assert reason(looked_at(api, "wanted")) == "SparkOperatorMissing"
    assert runs(api, "Job", "wanted") == []
    request.getfixturevalue("kinds_of_kubeflow")
    assert reason(looked_at(api, "wanted")) == "Starting"
    assert len(runs(api, SPARK, "wanted")) == 1
    assert namespace == NAMESPACE


@pytest.mark.usefixtures("namespace", "kinds_of_kubeflow")
def test_the_kind_alone_decides_and_takes_every_field_of_a_run(api: ApiServerProcess) -> None:
    deployed = api.must("GET", "/apis/apps/v1/deployments")["items"]
    assert deployed == [], "nobody's spark-operator"
    put(api, manifest(PIPELINE.name, {}, "lake"))
    status = looked_at(api, "lake")
    assert (reason(status), status["engineRef"]["kind"]) == ("Starting", SPARK)
    assert runs(api, "Job", "lake") == []
    (run,) = runs(api, SPARK, "lake")
    again = {key: run[key] for key in ("apiVersion", "kind", "spec")}
    again["metadata"] = {"name": "lake-again", "namespace": NAMESPACE}
    kept = api.apply(RESOURCES[SPARK].path(NAMESPACE, "lake-again"), again)
    assert kept["spec"] == run["spec"]
