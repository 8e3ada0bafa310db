"""What Helm makes of the chart: every template, every value, every variant."""

from __future__ import annotations

import copy
import json
import subprocess
from functools import cache
from typing import Any

import pytest
import yaml

from imago_operator.model.names import MANAGER
from imago_operator.rights import Where, rules
from imago_operator.spec.kinds import CLUSTER, KINDS, TOPIC
from imago_tools.chart_files import CHART, leaves, schema
from imago_tools.chart_helm import INSTALL, RefusedError, helm, install, objects, template

pytestmark = [pytest.mark.apiserver]

HA: dict[str, Any] = {"replicas": 2}
CONFINED: dict[str, Any] = {
    "scope": {"namespaces": ["orders", "billing"]},
    "crds": {"install": False},
}
METRICS: dict[str, Any] = {
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"operator": True, "brokers": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    }
}
REVIEWED: dict[str, Any] = {"tokenReview": {"clusters": ["orders/demo"]}}
VARIANTS = {
    "default": {},
    "ha": HA,
    "confined": CONFINED,
    "metrics": METRICS | HA,
    "reviewed": REVIEWED,
}
RELABELING = {"action": "replace", "targetLabel": "stage", "replacement": "test"}
OTHERS: dict[str, Any] = {
    "image.tag": "9.9.9",
    "image.digest": "sha256:" + "a" * 64,
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "rbac.secrets": ["demo-admin-token"],
    "tokenReview.clusters": ["orders/demo"],
    "logLevel": "debug",
    "finalizerReleaseAfter": "1h",
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "resources": {"limits": {"memory": "1Gi"}},
    "podSecurityContext": {"fsGroup": 5},
    "containerSecurityContext": {"privileged": False},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "nameOverride": "orders",
    "fullnameOverride": "orders-operator",
    "extraVolumes": [{"name": "proxy", "secret": {"secretName": "proxy"}}],
    "extraVolumeMounts": [{"name": "given", "mountPath": "/etc/proxy"}],
    "metrics.serviceMonitor.relabelings": [RELABELING],
    "metrics.serviceMonitor.metricRelabelings": [RELABELING],
    "metrics.podMonitor.relabelings": [RELABELING],
    "metrics.podMonitor.metricRelabelings": [RELABELING],
    "priorityClassName": "system-cluster-critical",
    "networkPolicy.from": [{"podSelector": {}}],
    "scope.namespaces": ["orders"],
    "serviceAccount.name": "other",
    "replicas": 3,
    "metrics.serviceMonitor.interval": "7s",
    "metrics.podMonitor.interval": "7s",
    "metrics.prometheusRule.certificateHours": 6,
}
"""Another value of each leaf whose kind does not give one away."""
OPERATORS = {"Deployment", "Service", "NetworkPolicy", "Lease", "ServiceMonitor"}
CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value  # type: ignore[no-any-return]  # a path has at least one part


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(base)
    for key, value in over.items():
        both = isinstance(found.get(key), dict) and isinstance(value, dict)
        found[key] = merged(found[key], value) if both else value
    return found


def at(values: Any, path: str) -> Any:
    """Return what a path has in these values; None: nothing."""
    for name in path.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


def other(path: str, part: dict[str, Any], now: Any) -> Any:
    """Return a value that is neither the default nor the one of now."""
    if path in OTHERS:
        return OTHERS[path]
    if part["type"] == "boolean":
        return not (part["default"] if now is None else now)
    if part["type"] == "integer":
        return part["default"] + 1
    return {"example.com/k": "v"} if part["type"] == "object" else "example.com/other"


@cache
def rendered(variant: str) -> str:
    return template(VARIANTS[variant])


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_are_lint_free(variant: str, tmp_path: Any) -> None:
    given = tmp_path / "values.json"
    given.write_text(json.dumps(VARIANTS[variant]))
    done = subprocess.run(
        [helm(), "lint", "--strict", str(CHART), "-f", str(given)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_template_makes_something_in_some_variant() -> None:
    everything = "".join(map(rendered, VARIANTS))
    names = [str(p.relative_to(CHART)) for p in (CHART / "templates").rglob("*.yaml")]
    assert len(names) > 8
    assert [name for name in names if f"# Source: imago/{name}\n" not in everything] == []


@pytest.mark.parametrize(("path", "part"), [*leaves(schema())], ids=lambda x: str(x)[:40])
def test_every_value_is_used(path: str, part: dict[str, Any]) -> None:
    base = merged(METRICS, HA)
    if path == "scope.readClusterFacts":
        base = merged(base, CONFINED)
    if path == "extraVolumeMounts":
        base = merged(base, {"extraVolumes": [{"name": "given", "emptyDir": {}}]})
    if path == "metrics.service.enabled":
        base = merged(base, {"metrics": {"serviceMonitor": {"enabled": False}}})
    value = other(path, part, at(base, path))

    assert template(merged(base, nested(path, value))) != template(base)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 2}, "'replica' not allowed"),
        ({"image": {"repo": "x"}}, "/image"),
        ({"metrics": {"podMonitor": {"enabled": True}}}, "/metrics/podMonitor"),
        ({"replicas": "two"}, "/replicas"),
        ({"replicas": 6}, "/replicas"),
        ({"scope": {"namespaces": ["Orders"]}}, "/scope/namespaces/0"),
        ({"scope": {"namespaces": ["a", "a"]}}, "/scope/namespaces"),
        ({"scope": {"namespaces": "orders"}}, "/scope/namespaces"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"image": {"repository": ""}}, "/image/repository"),
        ({"logLevel": "loud"}, "/logLevel"),
        ({"finalizerReleaseAfter": "15"}, "/finalizerReleaseAfter"),
        ({"labels": {"team": 7}}, "/labels/team"),
        ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0"),
        ({"metrics": {"podMonitor": {"interval": "often"}}}, "/metrics/podMonitor/interval"),
        ({"serviceAccount": {"name": "Not A Name"}}, "/serviceAccount/name"),
        ({"fullnameOverride": "Orders"}, "/fullnameOverride"),
        ({"probes": {"liveness": {"httpGet": {}}}}, "/probes/liveness"),
        ({"probes": {"startup": {"periodSeconds": 0}}}, "/probes/startup/periodSeconds"),
        ({"extraVolumes": [{"name": "x"}]}, "/extraVolumes/0"),
        ({"extraVolumeMounts": [{"name": "x", "path": "/x", "mountPath": "/x"}]}, "'path'"),
        ({"affinity": {"nodeSelector": {}}}, "'nodeSelector'"),
        ({"resources": {"memory": "1Gi"}}, "'memory'"),
        ({"podSecurityContext": {"runAsRoot": True}}, "'runAsRoot'"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "/topologySpreadConstraints/0"),
        ({"metrics": {"podMonitor": {"relabelings": [{"label": "x"}]}}}, "'label'"),
        ({"extraVolumeMounts": [{"name": "x", "mountPath": "/x"}]}, "no volume x; add it to"),
    ],
)
def test_bad_values_are_refused_with_their_path(values: dict[str, Any], said: str) -> None:
    with pytest.raises(RefusedError) as caught:
        template(values)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("values", "name", "shared"),
    [
        ({}, "imago-operator", "imago"),
        ({"nameOverride": "orders"}, "imago-orders", "imago-orders"),
        ({"nameOverride": "lost", "fullnameOverride": "orders"}, "orders", "orders"),
    ],
)
def test_names_may_be_others_and_labels_stay(
    values: dict[str, Any], name: str, shared: str
) -> None:
    found = objects(template(values | METRICS))
    made = [each for each in found if each["kind"] != "CustomResourceDefinition"]
    assert {each["metadata"]["name"] for each in made if each["kind"] in OPERATORS} == {name}
    strange = [each["metadata"]["name"] for each in made]
    assert [one for one in strange if not one.startswith((name, shared))] == []
    [deployment] = [each for each in made if each["kind"] == "Deployment"]
    labelled = deployment["spec"]["template"]["metadata"]["labels"]
    assert labelled["app.kubernetes.io/name"] == MANAGER, "brokers let those in alone"
    pod = deployment["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == name
    assert f"--lease-name={name}" in pod["containers"][0]["args"]


def test_a_monitor_of_a_service_that_is_not_there_is_refused() -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}}
    with pytest.raises(RefusedError, match=r"needs metrics\.service\.enabled"):
        template(values)


def test_short_certificates_call_when_they_were_to_be_renewed_long_ago() -> None:
    def limit(**values: int) -> str:
        rule = {"metrics": {"prometheusRule": {"enabled": True, **values}}}
        [made] = [one for one in objects(template(rule)) if one["kind"] == "PrometheusRule"]
        alerts = {one["alert"]: one for of in made["spec"]["groups"] for one in of["rules"]}
        return str(alerts["ImagoCertificateEnds"]["expr"]).rpartition("< ")[2]

    assert limit() == "72 * 3600"
    assert limit(certificateHours=6) == "6 * 3600"


def test_a_confined_operator_has_nothing_in_the_clusters_scope() -> None:
    found = objects(template(CONFINED, namespace="own"))

    assert [each["kind"] for each in found if each["kind"] in CLUSTER_SCOPED] == []
    places = {each["metadata"]["namespace"] for each in found if each["kind"] == "Role"}
    assert places == {"own", "orders", "billing"}
    [deployment] = [each for each in found if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert "--namespaces=orders,billing" in container["args"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_everything_else_names_its_namespace_and_its_release(variant: str) -> None:
    for each in objects(rendered(variant)):
        metadata = each["metadata"]
        assert ("namespace" in metadata) != (each["kind"] in CLUSTER_SCOPED), each
        if each["kind"] != "CustomResourceDefinition":
            assert metadata["labels"]["app.kubernetes.io/instance"] == "imago"


def granted(found: list[dict[str, Any]], kind: str, name: str) -> list[Any]:
    [role] = [e for e in found if e["kind"] == kind and e["metadata"]["name"] == name]
    return sorted(role["rules"], key=json.dumps)


def sums(*parts: Where) -> list[Any]:
    return sorted((rule for part in parts for rule in rules(part)), key=json.dumps)


def test_roles_have_the_rights_of_the_table() -> None:
    wide, confined = objects(rendered("default")), objects(rendered("confined"))
    bare = objects(template(CONFINED | {"pipelines": {"enabled": False}}))
    one = objects(template(CONFINED | {"scope": {"namespaces": ["orders"]}}))
    facts = CONFINED | {"scope": {"namespaces": ["orders"], "readClusterFacts": True}}
    narrow = objects(template(facts))

    inside = (Where.NAMESPACE, Where.PIPELINES, Where.SPARK_OPERATOR)
    everywhere = (Where.FACTS, Where.CLUSTER, *inside)
    assert granted(wide, "ClusterRole", "imago-operator-imago-system") == sums(*everywhere)
    assert granted(confined, "Role", "imago-operator-lease") == sums(Where.OWN)
    assert granted(one, "Role", "imago-operator") == sums(*inside)
    assert granted(narrow, "ClusterRole", "imago-operator-imago-system") == sums(Where.FACTS)
    for role in bare:
        if role["kind"] == "Role" and role["metadata"]["name"] == "imago-operator":
            assert sorted(role["rules"], key=json.dumps) == sums(Where.NAMESPACE)


def test_rights_to_secrets_are_confined_to_those_named() -> None:
    names = ["demo-admin-token", "ann"]
    for values in ({"rbac": {"secrets": names}}, CONFINED | {"rbac": {"secrets": names}}):
        found = [
            (rule["verbs"], rule.get("resourceNames"))
            for made in objects(template(values))
            if made["kind"] in ("Role", "ClusterRole")
            for rule in made["rules"]
            if "secrets" in rule["resources"]
        ]
        places = 2 if "scope" in values else 1
        assert found == [(["create"], None), (["get", "patch"], names)] * places


def test_brokers_of_named_clusters_may_ask_whose_tokens_are() -> None:
    made = {
        m["kind"]: m
        for m in objects(template(REVIEWED))
        if m["metadata"]["name"].endswith("review")
    }
    [rule] = made["ClusterRole"]["rules"]
    assert (rule["resources"], rule["verbs"]) == (["tokenreviews"], ["create"])
    assert made["ClusterRoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "demo-brokers", "namespace": "orders"}
    ]


def test_open_clusters_are_asked_about_unless_they_are_meant() -> None:
    def policies(values: dict[str, Any]) -> list[dict[str, Any]]:
        return [e for e in objects(template(values)) if e["kind"].startswith("Validating")]

    policy, binding = policies({})
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Warn"], "manifests that work go on to work"
    assert policies({"insecure": True}) == policies(CONFINED) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_pods_satisfy_the_strictest_standard(variant: str) -> None:
    pods = []
    for each in objects(rendered(variant)):
        if each["kind"] == "Pod":
            pods.append(each["spec"])
        elif each["kind"] in {"Deployment", "Job"}:
            pods.append(each["spec"]["template"]["spec"])
    assert len(pods) == 3
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


def test_definitions_stay_when_the_chart_goes() -> None:
    found = [e for e in objects(rendered("default")) if e["kind"] == "CustomResourceDefinition"]
    assert len(found) == len(KINDS)
    for each in found:
        assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_two_operators_are_kept_apart() -> None:
    found = objects(rendered("ha"))
    [deployment] = [each for each in found if each["kind"] == "Deployment"]
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert {each["topologyKey"] for each in spread} == {
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    }
    assert [e["spec"]["maxUnavailable"] for e in found if e["kind"] == "PodDisruptionBudget"] == [1]


def test_a_second_operator_restarts_nothing() -> None:
    one, two = (
        next(each for each in objects(rendered(name)) if each["kind"] == "Deployment")
        for name in ("default", "ha")
    )
    assert one["spec"]["template"] == two["spec"]["template"]
    alone = {each["kind"] for each in objects(rendered("default"))}
    assert "PodDisruptionBudget" not in alone


def test_no_service_and_no_policy_takes_hooks_for_operators() -> None:
    found = objects(rendered("default"))
    [service] = [each for each in found if each["kind"] == "Service"]
    wanted = service["spec"]["selector"].items()
    for each in found:
        if each["kind"] == "Deployment":
            assert wanted <= each["spec"]["template"]["metadata"]["labels"].items()
        elif each["kind"] in {"Pod", "Job"}:
            template_ = each if each["kind"] == "Pod" else each["spec"]["template"]
            assert not wanted <= template_["metadata"]["labels"].items()


def test_notes_say_what_to_do_next() -> None:
    command = [helm(), "install", "imago", str(CHART), "-n", "own", "--dry-run=client"]
    confined = ["--set", "scope.namespaces={orders}", "--set", "crds.install=false"]

    def notes(*more: str) -> str:
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
        return done.stdout.rpartition("NOTES:")[2]

    assert "helm test imago -n own" in notes()
    assert "kubectl create namespace messages" in notes()
    assert "demo-bootstrap.orders.svc:9876" in notes(*confined)
    assert "kubectl apply --server-side -f manifests/crds" in notes(*confined)


@pytest.mark.parametrize("options", [(), ("--set", "scope.namespaces={orders}")])
def test_what_notes_say_to_paste_makes_a_cluster_and_a_topic(options: tuple[str, ...]) -> None:
    command = [helm(), "install", "imago", str(CHART), "-n", "own", "--dry-run=client", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    notes = done.stdout.rpartition("NOTES:")[2]
    pasted = notes[notes.index("kubectl apply -n") : notes.index("\nEOF\n") + 5]
    shell = subprocess.run(
        ["bash", "-euc", f"kubectl() {{ cat; }}\n{pasted}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stderr == ""
    made = list(yaml.safe_load_all(shell.stdout))
    cluster, topic = made
    assert (cluster["kind"], topic["kind"]) == (CLUSTER.name, TOPIC.name)
    assert [*CLUSTER.problems(cluster), *TOPIC.problems(topic)] == []


def test_install_yaml_is_what_the_chart_makes() -> None:
    assert INSTALL.read_text() == install(), "run `make docs`"
