"""What the plugin says of clusters: golden outputs for each case of the operator."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.kubectl.tool import refusal
from imago_operator.plan import PlanRow
from imago_testing.operated.stories import by_row

if TYPE_CHECKING:
    from imago_testing.kubernetes.plugin import Kube

SERVING = ("Ready", "Available")
GOLDEN = Path(__file__).with_name("golden")
CLUSTERS = "imagoclusters.imago.dev"


@cache
def stories() -> dict[str, dict[str, Any]]:
    return by_row()


def golden(name: str, text: str) -> None:
    """Compare with a file; IMAGO_GOLDEN=write writes it anew, to be read before it is kept."""
    file = GOLDEN / name
    if os.environ.get("IMAGO_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("row", [row.title for row in PlanRow])
def test_each_case_is_explained(kube: Kube, row: str) -> None:
    kube.objects[CLUSTERS] = [stories()[row]]
    done = kube.run("explain", "demo")
    assert (done.code, done.err) == (0, "")
    golden(f"explain-{row}.txt", done.out)


@pytest.mark.parametrize("row", ["Settled", "Restarting", "ShardWithoutMaster", "ScalingDown"])
def test_a_cluster_is_shown(kube: Kube, row: str) -> None:
    kube.objects[CLUSTERS] = [stories()[row]]
    done = kube.run("status", "demo")
    assert (done.code, done.err) == (int(row == "ShardWithoutMaster"), "")
    golden(f"status-{row}.txt", done.out)


def test_all_clusters_are_listed(kube: Kube) -> None:
    kube.objects[CLUSTERS] = [stories()["Settled"], stories()["Paused"]]
    done = kube.run("status", "-A")
    assert done.code == 0
    golden("status.txt", done.out)
    assert "--all-namespaces" in kube.calls()[0]


def test_programs_get_json(kube: Kube) -> None:
    kube.objects[CLUSTERS] = [stories()["Restarting"]]
    (one,) = json.loads(kube.run("status", "-o", "json").out)
    assert (one["name"], one["namespace"], one["shards"]) == ("demo", "mq", 2)
    told = json.loads(kube.run("explain", "demo", "-o", "json").out)
    assert (told["row"], told["number"]) == ("Restarting", PlanRow.ROLLOUT.number)
    assert all(one["means"] for one in told["conditions"])


def test_a_cluster_that_nobody_looked_at_says_so(kube: Kube) -> None:
    fresh = {key: value for key, value in stories()["Settled"].items() if key != "status"}
    kube.objects[CLUSTERS] = [fresh]
    assert "has not observed it yet" in kube.run("status", "demo").out
    assert "has not observed it yet" in kube.run("explain", "demo").out


def test_nothing_outlives_its_observation(kube: Kube) -> None:
    """With the operator dead its last words stay in the status; they are no news."""
    now = datetime.now(UTC)
    told = json.loads(json.dumps(stories()["Settled"]))
    for age, code in ((30, 0), (91, 1)):
        told["status"]["lookedAt"] = (now - timedelta(seconds=age)).isoformat()
        kube.objects[CLUSTERS] = [told]
        assert kube.run("status", "demo").code == kube.run("status").code == code
    shown, listed = kube.run("status", "demo").out, kube.run("status", "-o", "json").out
    assert "Ready=True" not in shown
    assert not {"Accepted", "InSync", "Serving"} & set(shown.split())
    (one,) = json.loads(listed)
    assert (one["ready"], one["available"], one["inSync"]) == ("Unknown", "Unknown", "? of 6")
    explained = kube.run("explain", "demo")
    assert explained.out.startswith("demo: last observed ")
    assert "Is the operator running?" in explained.out.splitlines()[0]
    assert json.loads(kube.run("explain", "demo", "-o", "json").out)["observed"] is False


def test_a_cluster_that_refuses_puts_is_a_failure(kube: Kube) -> None:
    told = json.loads(json.dumps(stories()["Settled"]))
    why = "shard-0: too few members are in sync."
    for one in told["status"]["conditions"]:
        if one["type"] == "Available":
            one |= {"status": "False", "reason": "PutsRefused", "message": why}
    kube.objects[CLUSTERS] = [told]
    done = kube.run("status", "demo")
    assert done.code == 1
    assert f"Available=False PutsRefused: {why}" in done.out


def test_a_cluster_that_nobody_ever_looked_at_is_a_failure(kube: Kube) -> None:
    kube.objects[CLUSTERS] = [{k: v for k, v in stories()["Settled"].items() if k != "status"}]
    assert kube.run("status", "demo").code == 1


def test_a_spec_that_is_newer_than_the_status_is_told(kube: Kube) -> None:
    newer = json.loads(json.dumps(stories()["Settled"]))
    newer["metadata"]["generation"] += 1
    kube.objects[CLUSTERS] = [newer]
    assert "has not seen the newest spec" in kube.run("explain", "demo").out


def test_a_reason_that_is_newer_than_the_plugin_is_shown_as_it_is(kube: Kube) -> None:
    newer = json.loads(json.dumps(stories()["Settled"]))
    newer["status"]["conditions"].append(
        {"type": "Degraded", "status": "True", "reason": "Unheard", "message": "of"}
    )
    newer["status"]["progress"]["row"] = "Unheard"
    kube.objects[CLUSTERS] = [newer]
    assert "Degraded=True Unheard: of\n" in kube.run("explain", "demo").out


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"allow-data-loss": "true"}, "allow-data-loss=true names no shard: write the shard's"),
        ({"allow-data-loss": "0"}, "allow-data-loss=0 stands although the shard has a master"),
        ({"alow-data-loss": "0"}, "none of that name; do you mean imago.dev/allow-data-loss?"),
        ({"pause-reconciliation": "yes"}, "pause-reconciliation=yes pauses nothing"),
        (
            {"unheard": ""},
            "imago.dev/unheard: the operator reads none of that name; it knows allow-data-loss",
        ),
    ],
)
def test_annotations_without_effect_are_named(
    kube: Kube, annotations: dict[str, str], said: str
) -> None:
    settled = json.loads(json.dumps(stories()["Settled"]))
    set_ = settled["metadata"].setdefault("annotations", {})
    set_ |= {f"imago.dev/{name}": value for name, value in annotations.items()}
    kube.objects[CLUSTERS] = [settled]
    assert said in kube.run("explain", "demo").out
    assert len(json.loads(kube.run("explain", "demo", "-o", "json").out)["remarks"]) == 1


def test_a_registry_that_others_may_change_is_told(kube: Kube) -> None:
    open_ = json.loads(json.dumps(stories()["Settled"]))
    text = (
        "spec.zookeeper.managed.authentication is None: anyone who reaches ZooKeeper may change it."
    )
    open_["status"]["conditions"].append(
        {"type": "RegistryOpen", "status": "True", "reason": "AsSpecified", "message": text}
    )
    kube.objects[CLUSTERS] = [open_]
    assert f"ZooKeeper is open: {text}\n" in kube.run("status", "demo").out
    explained = kube.run("explain", "demo").out
    assert "RegistryOpen=True AsSpecified" in explained
    kube.objects[CLUSTERS] = [stories()["Settled"]]
    assert "RegistryOpen" not in kube.run("explain", "demo").out


def test_a_certificate_that_nobody_replaced_is_told(kube: Kube) -> None:
    late = json.loads(json.dumps(stories()["Settled"]))
    text = "Certificates that end soon: authority ends 2026-12-24T00:00:00Z."
    late["status"]["conditions"].append(
        {
            "type": "CertificateEndsSoon",
            "status": "True",
            "reason": "NobodyReplacesIt",
            "message": text,
        }
    )
    kube.objects[CLUSTERS] = [late]
    assert f"{text}\n" in kube.run("status", "demo").out
    assert "Write another one into the Secret" in kube.run("explain", "demo").out


def test_annotations_with_an_effect_are_not_remarked_on(kube: Kube) -> None:
    settled = json.loads(json.dumps(stories()["Settled"]))
    set_ = settled["metadata"].setdefault("annotations", {})
    set_ |= {"imago.dev/restart": "now", "imago.dev/pause-reconciliation": "true", "other/x": "1"}
    kube.objects[CLUSTERS] = [settled]
    assert json.loads(kube.run("explain", "demo", "-o", "json").out)["remarks"] == []


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ('error: the server doesn\'t have a resource type "x"', "helm install"),
        ("Error from server (Forbidden): you cannot", "ask for the right"),
        ("Unable to connect to the server: dial tcp", "--kubeconfig"),
        ("The connection to the server x was refused", "--kubeconfig"),
    ],
)
def test_kubectls_refusals_come_with_a_cure(kube: Kube, said: str, cure: str) -> None:
    kube.refusals["get"] = said
    done = kube.run("status")
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert cure in done.err


def test_without_kubectl_it_says_so(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL", "/nowhere/kubectl")
    done = kube.run("status")
    assert (done.code, "/nowhere/kubectl" in done.err) == (1, True)


def test_kubectls_options_are_passed_on(kube: Kube) -> None:
    kube.run("status", "-n", "mq", "--context", "east", "--kubeconfig", "f")
    assert kube.calls()[0][:3] == ["--namespace=mq", "--context=east", "--kubeconfig=f"]


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "explain",
        "plan",
        "handover",
        "approve",
        "pause",
        "resume",
        "restart",
        "topics",
        "groups",
    ],
)
def test_every_command_explains_itself(kube: Kube, command: str) -> None:
    done = kube.run(command, "--help")
    assert done.code == 0
    assert "Usage: kubectl imago " + command in done.out
    assert "--namespace" in done.out


REFUSED = 'E1122 19:57:33.687410 13945 memcache.go:265] "Unhandled Error" err="dial: refused"\n'


@pytest.mark.parametrize(
    ("said", "told", "cure"),
    [
        (
            f"{REFUSED * 3}The connection to the server localhost:8080 was refused - did you"
            " specify the right host or port?\n",
            "The connection to the server localhost:8080 was refused - did you specify the right"
            " host or port?",
            "check --context and --kubeconfig",
        ),
        (
            "Error in configuration: context was not found for specified context: nope",
            "context was not found for specified context: nope",
            "`kubectl config get-contexts` lists them",
        ),
        (
            "error: stat /no/such: no such file or directory",
            "stat /no/such: no such file or directory",
            "check --kubeconfig and KUBECONFIG",
        ),
        (
            'Error from server (NotFound): imagousers.imago.dev "eve" not found',
            'Error from server (NotFound): imagousers.imago.dev "eve" not found',
            "`kubectl get imu -A` shows those that are there; check --namespace",
        ),
        (
            'Error from server (NotFound): pods "demo-s0-9" not found',
            'Error from server (NotFound): pods "demo-s0-9" not found',
            "`kubectl get pods` shows those that are there; check --namespace",
        ),
        (
            'error: The request is invalid: patch: Invalid value: "{\\"apiVersion\\":'
            '\\"imago.dev/v1alpha1\\",\\"kind\\":\\"ImagoCluster\\",\\"spec\\":{}}": strict'
            ' decoding error: unknown field "spec.brokers.shard"',
            'unknown field "spec.brokers.shard"',
            "`kubectl explain imagocluster.spec.brokers` lists the fields there",
        ),
        (
            "Error from server (BadRequest): ImagoUser cannot be handled as a ImagoUser: strict"
            ' decoding error: unknown field "spec.authorization.acls[0].oper"',
            'unknown field "spec.authorization.acls[0].oper"',
            "`kubectl explain imagouser.spec.authorization.acls` lists the fields there",
        ),
        (REFUSED, REFUSED.strip(), ""),
        ("", "kubectl get failed without a word", ""),
    ],
)
def test_kubectl_s_own_words_are_one_line_with_a_cure(said: str, told: str, cure: str) -> None:
    error = refusal(said, "get")
    assert (error.message, error.cure) == (told, cure)


def test_a_cluster_that_hibernates_has_an_exit_code_of_its_own(kube: Kube) -> None:
    told = json.loads(json.dumps(stories()["Settled"]))
    kept = [
        one for one in told["status"]["conditions"] if one["type"] not in {"Ready", "Available"}
    ]
    (ready,) = [one for one in told["status"]["conditions"] if one["type"] == "Ready"]
    asleep = [ready | {"type": t, "status": "False", "reason": "Hibernated"} for t in SERVING]
    slept = ready | {"type": "Hibernated", "status": "True", "reason": "Asleep"}
    told["status"]["conditions"] = [*asleep, *kept, slept]
    kube.objects[CLUSTERS] = [told]
    done = kube.run("status", "demo")
    assert (done.code, kube.run("status").code) == (6, 6)
    assert "Ready=False Hibernated" in done.out
    kube.objects[CLUSTERS] = [stories()["Settled"], told]
    assert kube.run("status").code == 6
    kube.objects[CLUSTERS] = [told, stories()["ShardWithoutMaster"]]
    assert kube.run("status").code == 1
    stale = (datetime.now(UTC) - timedelta(seconds=91)).isoformat()
    kube.objects[CLUSTERS] = [{**told, "status": {**told["status"], "lookedAt": stale}}]
    assert kube.run("status").code == 1
