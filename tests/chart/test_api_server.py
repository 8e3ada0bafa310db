"""The chart on a real API server, without nodes: installed, upgraded, uninstalled by Helm."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from imago_operator.rights import RIGHTS, Where
from imago_operator.spec.kinds import KINDS
from imago_testing.kubernetes.api_server import ApiServerProcess, running_api_server
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.processes.servers import wait_until
from imago_tools.chart_files import CHART, ROOT
from imago_tools.chart_helm import INSTALL, NAMESPACE, helm, objects, template

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.apiserver]

TAKE = "--take-ownership"
CONFINED = ["--set", "scope.namespaces={orders}", "--set", "crds.install=false"]
ROLES = {
    "Role": "rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
CRD_FILES = ROOT / "manifests" / "crds"
OPEN_CLUSTERS = "imago-operator-wide-open-clusters"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SAMPLES = ROOT / "manifests" / "samples"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with running_api_server(tmp_path_factory.mktemp("chart") / "server") as server:
        for name in ("orders", "elsewhere"):
            server.namespace(name)
        yield server


def run(api: ApiServerProcess, *words: str) -> str:
    command = [*words, "--kubeconfig", str(api.kubeconfig())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def installed(api: ApiServerProcess, namespace: str, *options: str) -> Iterator[None]:
    words = ["install", "imago", str(CHART), "-n", namespace, "--create-namespace", *options]
    run(api, helm(), *words)
    try:
        yield
    finally:
        run(api, helm(), "uninstall", "imago", "-n", namespace, "--no-hooks")


def names(api: ApiServerProcess, path: str) -> set[str]:
    found: dict[str, Any] = {}

    def answered() -> bool:
        status, answer = api.call("GET", path)
        found.update(answer)
        return status != 429  # definitions that were changed are not served for a moment

    wait_until(answered, seconds_max=60, what=path)
    return {item["metadata"]["name"] for item in found["items"]}


def left(api: ApiServerProcess, namespace: str) -> set[str]:
    """Return everything of ours that is left in a namespace."""
    paths = [
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
        f"/api/v1/namespaces/{namespace}/services",
        f"/api/v1/namespaces/{namespace}/serviceaccounts",
        f"/api/v1/namespaces/{namespace}/secrets",
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
        f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
        *(f"/apis/{path.format(namespace)}" for path in ROLES.values()),
    ]
    return {name for path in paths for name in names(api, path)}


def cluster_wide(api: ApiServerProcess) -> set[str]:
    base = "/apis/rbac.authorization.k8s.io/v1"
    found = names(api, f"{base}/clusterroles") | names(api, f"{base}/clusterrolebindings")
    return {name for name in found if "imago" in name}


def topic(name: str, *finalizers: str) -> dict[str, Any]:
    return {
        "apiVersion": "imago.dev/v1alpha1",
        "kind": "ImagoTopic",
        "metadata": {"name": name, "finalizers": list(finalizers)},
        "spec": {"clusterRef": {"name": "demo"}},
    }


def may(api: ApiServerProcess, right: tuple[str, str, str], namespace: str, user: str) -> bool:
    group, resource, verb = right
    plural, _, part = resource.partition("/")
    asked = {"group": group, "resource": plural, "verb": verb, "namespace": namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "resourceAttributes": asked | ({"subresource": part} if part else {}),
        },
    }
    answer = api.must("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])


def of(*places: Where) -> list[tuple[str, str, str]]:
    return [
        (right.group, resource, verb)
        for right in RIGHTS
        if right.where in places
        for resource in right.resources
        for verb in right.verbs
    ]


INSIDE = of(Where.NAMESPACE, Where.PIPELINES, Where.SPARK_OPERATOR)
OWN = of(Where.OWN)
WIDE = of(Where.FACTS, Where.CLUSTER)


def test_an_install_and_an_uninstall_leave_definitions_alone(api: ApiServerProcess) -> None:
    with installed(api, "wide", "--set", "replicas=2", TAKE):
        assert {"imago-operator"} <= left(api, "wide")
        assert names(api, CRDS) == {kind.crd_name for kind in KINDS}

    assert left(api, "wide") == set()
    assert cluster_wide(api) == set()
    assert names(api, CRDS) == {kind.crd_name for kind in KINDS}


def test_an_upgrade_changes_definitions_and_what_there_is_stays(
    api: ApiServerProcess, tmp_path: Path
) -> None:
    next_chart = tmp_path / "imago"
    shutil.copytree(CHART, next_chart)
    crd = next_chart / "files" / "crds" / "imagotopics.yaml"
    definition = yaml.safe_load(crd.read_text())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["colour"] = {"type": "string", "description": "A field that came later."}
    crd.write_text(yaml.safe_dump(definition))
    path = "/apis/imago.dev/v1alpha1/namespaces/elsewhere/imagotopics"

    with installed(api, "wide", TAKE):
        api.must("POST", path, topic("kept"))
        run(api, helm(), "upgrade", "imago", str(next_chart), "-n", "wide")
        found = api.must("GET", f"{CRDS}/imagotopics.imago.dev")
        assert "colour" in json.dumps(found["spec"])
        assert names(api, path) == {"kept"}

    assert names(api, path) == {"kept"}


LEASES = ("coordination.k8s.io", "leases", "get")
EARLIER_VALUES = {"replicas": 2, "finalizerReleaseAfter": "7m"}


@pytest.fixture(name="earlier")
def _earlier(tmp_path: Path) -> Path:
    """The chart as it was before clusters said who looks after them: a field and a right less."""
    chart = tmp_path / "imago"
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": "0.0.1"}))
    file = chart / "files" / "crds" / "imagoclusters.yaml"
    definition = yaml.safe_load(file.read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["operatedBy"]
    file.write_text(yaml.safe_dump(definition, sort_keys=False))
    rights = chart / "files" / "rights.yaml"
    parts = yaml.safe_load(rights.read_text())
    parts["namespace"] = [rule for rule in parts["namespace"] if rule["resources"] != ["leases"]]
    rights.write_text(yaml.safe_dump(parts, sort_keys=False))
    return chart


def test_an_earlier_chart_is_upgraded_with_its_definitions_rights_and_values(
    api: ApiServerProcess, earlier: Path
) -> None:
    user = "system:serviceaccount:grown:imago-operator"
    path = "/apis/imago.dev/v1alpha1/namespaces/elsewhere/imagoclusters"
    words = [
        word for name, value in EARLIER_VALUES.items() for word in ("--set", f"{name}={value}")
    ]
    run(
        api,
        helm(),
        "install",
        "imago",
        str(earlier),
        "-n",
        "grown",
        "--create-namespace",
        *words,
        TAKE,
    )
    try:
        made = api.must("POST", path, manifest("ImagoCluster"))
        assert not may(api, LEASES, "elsewhere", user)
        assert write_status(api, path, {"operatedBy": "grown/imago-operator"}) >= 400

        upgrade = ["upgrade", "imago", str(CHART), "-n", "grown", "--reset-then-reuse-values"]
        run(api, helm(), *upgrade)
        for kind in KINDS:
            served = api.must("GET", f"{CRDS}/{kind.crd_name}")["spec"]["versions"]
            wanted = yaml.safe_load((CRD_FILES / f"{kind.plural}.yaml").read_text())["spec"]
            assert [version["schema"] for version in served] == [
                version["schema"] for version in wanted["versions"]
            ]
        assert may(api, LEASES, "elsewhere", user)
        wait_until(
            lambda: write_status(api, path, {"operatedBy": "grown/imago-operator"}) < 300,
            seconds_max=60,
            what="the new definition is in force",
            poll=0.2,
        )
        kept = api.must("GET", f"{path}/demo")
        assert (kept["metadata"]["uid"], kept["spec"]) == (made["metadata"]["uid"], made["spec"])
        assert json.loads(
            run(api, helm(), "get", "values", "imago", "-n", "grown", "-o", "json")
        ) == (EARLIER_VALUES)
        deployment = api.must("GET", "/apis/apps/v1/namespaces/grown/deployments/imago-operator")
        assert deployment["spec"]["replicas"] == 2
        assert "--finalizer-release-after=7m" in json.dumps(deployment["spec"])
    finally:
        run(api, helm(), "uninstall", "imago", "-n", "grown", "--no-hooks")
        api.call("DELETE", f"{path}/demo")


def write_status(api: ApiServerProcess, path: str, status: dict[str, Any]) -> int:
    """Apply a status as the operator does; return the answer's code."""
    about = {"apiVersion": "imago.dev/v1alpha1", "kind": "ImagoCluster"}
    body = {**about, "metadata": {"name": "demo"}, "status": status}
    where = f"{path}/demo/status?fieldManager=imago-operator-status&force=true"
    return api.call("PATCH", where, body, content="application/apply-patch+yaml")[0]


def test_another_release_takes_definitions_over_when_told_to(api: ApiServerProcess) -> None:
    with installed(api, "first", TAKE):
        pass
    with pytest.raises(AssertionError, match="invalid ownership metadata"):
        run(api, helm(), "install", "imago", str(CHART), "-n", "second", "--create-namespace")
    with installed(api, "third", TAKE):
        assert {"imago-operator"} <= left(api, "third")


def test_a_confined_operator_has_its_rights_and_none_beyond(api: ApiServerProcess) -> None:
    user = "system:serviceaccount:own:imago-operator"
    with installed(api, "own", *CONFINED):
        assert cluster_wide(api) == set()
        assert [r for r in INSIDE if not may(api, r, "orders", user)] == []
        assert [r for r in OWN if not may(api, r, "own", user)] == []
        assert [r for r in INSIDE if may(api, r, "elsewhere", user)] == []
        assert [r for r in INSIDE if may(api, r, "own", user)] == [r for r in INSIDE if r in OWN]
        assert [r for r in WIDE if may(api, r, "", user)] == []
        assert not may(api, ("", "secrets", "list"), "orders", user)
    assert left(api, "orders") == set()


def test_an_operator_of_all_namespaces_has_its_rights_and_none_beyond(
    api: ApiServerProcess,
) -> None:
    user = "system:serviceaccount:wide:imago-operator"
    with installed(api, "wide", TAKE):
        assert [r for r in INSIDE if not may(api, r, "elsewhere", user)] == []
        assert [r for r in WIDE if not may(api, r, "", user)] == []
        beyond = [("", "secrets", "list"), ("", "nodes", "patch"), ("", "pods/exec", "create")]
        beyond += [("coordination.k8s.io", "leases", "update")]
        assert [r for r in beyond if may(api, r, "elsewhere", user)] == []


@pytest.mark.parametrize(
    "values",
    [{}, {"replicas": 2}, {"scope": {"namespaces": ["orders"]}}],
    ids=["default", "ha", "confined"],
)
def test_no_object_has_a_field_that_kubernetes_does_not_know(
    api: ApiServerProcess, values: dict[str, Any]
) -> None:
    paths = {
        "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
        "Pod": "/api/v1/namespaces/{}/pods",
        "Job": "/apis/batch/v1/namespaces/{}/jobs",
        "Service": "/api/v1/namespaces/{}/services",
        "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
        "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
        "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "CustomResourceDefinition": CRDS,
        "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
        **{kind: f"/apis/{path}" for kind, path in ROLES.items()},
    }
    for made in objects(template(values, namespace="orders")):
        path = paths[made["kind"]].format(made["metadata"].get("namespace"))
        status, answer = api.call(
            "PATCH",
            f"{path}/{made['metadata']['name']}?fieldManager=t&force=true&fieldValidation=Strict"
            "&dryRun=All",
            made,
            content="application/apply-patch+yaml",
        )
        assert status in (200, 201), (made["kind"], answer)


def test_install_yaml_is_applied_and_may_be_applied_again(api: ApiServerProcess) -> None:
    kubectl = str(Path(helm()).with_name("kubectl"))
    words = ["apply", "--server-side", "--force-conflicts", "-f", str(INSTALL)]
    first = run(api, kubectl, *words)
    run(api, kubectl, *words)

    assert first.count("serverside-applied") == len(list(yaml.safe_load_all(INSTALL.read_text())))
    assert {"imago-operator"} <= left(api, NAMESPACE)


def warnings(api: ApiServerProcess, sample: str) -> str:
    """Return what the API server tells whoever would apply a sample."""
    kubectl = str(Path(helm()).with_name("kubectl"))
    words = [
        kubectl,
        "create",
        "-n",
        "orders",
        "--dry-run=server",
        "-f",
        f"{SAMPLES}/{sample}.yaml",
    ]
    done = subprocess.run(
        [*words, "--kubeconfig", str(api.kubeconfig())], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_who_applies_an_open_cluster_is_told_and_not_refused(api: ApiServerProcess) -> None:
    with installed(api, "wide", TAKE):
        wait_until(
            lambda: OPEN_CLUSTERS in warnings(api, "laptop"),
            seconds_max=60,
            what="the rule is in force",
        )
        said = warnings(api, "laptop")
        assert "may send, read and administer" in said
        assert "do not prove who they are to each other" in said
        assert "insecure=true" in said
        assert "nodes of this cluster's brokers" not in said
        assert "nodes of this cluster's brokers" in warnings(api, "external-zookeeper")
        assert warnings(api, "closed") == ""
        assert warnings(api, "topic") == ""
        kubectl = [str(Path(helm()).with_name("kubectl")), "-n", "orders"]
        place = ["--kubeconfig", str(api.kubeconfig())]

        def told(*words: str) -> str:
            command = [*kubectl, *words, *place]
            return subprocess.run(command, capture_output=True, text=True, check=True).stderr

        try:
            assert "may send" in told("create", "-f", f"{SAMPLES}/laptop.yaml")
            assert told("annotate", "imc", "laptop", "imago.dev/restart=1") == ""
            more = '{"spec":{"brokers":{"shards":2}}}'
            assert "may send" in told("patch", "imc", "laptop", "--type=merge", "-p", more)
            opened = '{"spec":{"zookeeper":{"managed":{"authentication":"None"}}}}'
            said = told("patch", "imc", "laptop", "--type=merge", "-p", opened)
            assert "nodes of this cluster's brokers" in said
        finally:
            told("delete", "imc", "laptop")


def test_open_clusters_that_are_meant_are_not_spoken_of(api: ApiServerProcess) -> None:
    with installed(api, "wide", TAKE, "--set", "insecure=true"):
        assert OPEN_CLUSTERS not in names(api, f"{ADMISSION}/validatingadmissionpolicies")


def test_what_helm_runs_in_pods_works_on_a_real_server(api: ApiServerProcess) -> None:
    spec = importlib.util.spec_from_file_location("hooks", CHART / "files" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    api.install_crds()
    context = ssl.create_default_context(cafile=str(api.authority))
    found = hooks.Api(api.url, api.tokens["admin"], context)

    hooks.check(found, "", "orders")

    path = "/apis/imago.dev/v1alpha1/namespaces/orders/imagotopics"
    api.must("POST", path, topic("held", "example.com/other", "imago.dev/operator"))
    assert hooks.release(found, [], "orders", "app%3Dx") == 1
    assert api.must("GET", f"{path}/held")["metadata"]["finalizers"] == ["example.com/other"]
