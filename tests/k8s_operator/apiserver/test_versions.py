"""Each kind under both of its versions: what one writes the other reads, watches and reports."""

from __future__ import annotations

import json
import os
import re
import shlex
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rig.build import programs

from imago_operator.kube.resources import RESOURCES
from imago_operator.spec import crd
from imago_operator.spec.kinds import GROUP, KINDS, VERSION, VERSIONS
from imago_testing.kubernetes.api_server import ADMIN
from imago_testing.kubernetes.custom_resources import CLUSTER, GOOD, TOPIC, manifest
from imago_testing.kubernetes.operator_process import running_operator
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from imago_testing.kubernetes.api_server import ApiServerProcess

pytestmark = pytest.mark.apiserver
ROOT = Path(__file__).parents[3]
NEW = VERSIONS[1]
SETTLES_S = 60


def path(kind: str, namespace: str, version: str, name: str = "") -> str:
    return RESOURCES[kind].path(namespace, name).replace(f"/{VERSION}/", f"/{version}/")


def placed(kind: str, namespace: str, version: str) -> dict[str, Any]:
    made = manifest(kind)
    metadata = {**made["metadata"], "namespace": namespace}
    return {**made, "apiVersion": f"{GROUP}/{version}", "metadata": metadata}


def without_version(found: dict[str, Any]) -> dict[str, Any]:
    metadata = {k: v for k, v in found["metadata"].items() if k != "managedFields"}
    return {**found, "metadata": metadata, "apiVersion": ""}


def test_both_versions_have_one_schema() -> None:
    for kind in KINDS:
        spec = crd.definition(kind)["spec"]
        old, new = spec["versions"]
        assert (old["name"], new["name"], old["storage"], new["storage"]) == (
            "v1alpha1",
            "v1beta1",
            True,
            False,
        )
        assert {**old, "name": "", "storage": 0} == {**new, "name": "", "storage": 0}
        assert spec["conversion"] == {"strategy": "None"}


@pytest.mark.parametrize("kind", GOOD)
def test_what_one_version_writes_the_other_reads_and_reports(
    api: ApiServerProcess, kind: str
) -> None:
    space = api.namespace(f"both-{kind.lower()}")
    for first, second in ((VERSION, NEW), (NEW, VERSION)):
        made = api.must("POST", path(kind, space, first), placed(kind, space, first))
        name = made["metadata"]["name"]
        read = api.must("GET", path(kind, space, second, name))
        assert read["apiVersion"] == f"{GROUP}/{second}"
        assert without_version(read) == without_version(made)
        status = {"status": {"observedGeneration": 7}}
        where = f"{path(kind, space, second, name)}/status"
        api.must("PATCH", where, status, content="application/merge-patch+json")
        again = api.must("GET", path(kind, space, first, name))
        assert again["status"]["observedGeneration"] == 7
        api.must("DELETE", path(kind, space, second, name))
        assert api.call("GET", path(kind, space, first, name))[0] == 404


def test_a_rule_refuses_by_both(api: ApiServerProcess) -> None:
    space = api.namespace("ruled")
    for version in VERSIONS:
        wrong = placed(CLUSTER, space, version)
        wrong["spec"] = {**wrong["spec"], "zookeeper": {}}
        status, answer = api.call("POST", path(CLUSTER, space, version), wrong)
        assert status == 422, answer
        assert "exactly one of" in answer["message"]


def test_a_watch_of_one_version_tells_of_the_other(api: ApiServerProcess) -> None:
    space = api.namespace("watched")
    api.must("POST", path(TOPIC, space, NEW), placed(TOPIC, space, NEW))
    context = ssl.create_default_context(cafile=str(api.authority))
    request = urllib.request.Request(
        f"{api.url}{path(TOPIC, space, VERSION)}?watch=1&timeoutSeconds=5",
        headers={"Authorization": f"Bearer {api.tokens[ADMIN]}"},
    )
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:
        event = json.loads(answer.readline())
    assert event["type"] == "ADDED"
    assert event["object"]["apiVersion"] == f"{GROUP}/{VERSION}"


def test_the_operator_works_on_what_either_version_made(
    api: ApiServerProcess, tmp_path: Path
) -> None:
    space = api.namespace("either")
    made = placed(CLUSTER, space, NEW)
    with running_operator(
        tmp_path, api.kubeconfig(), "--namespaces", space, "--lease-namespace", space
    ):
        api.must("POST", path(CLUSTER, space, NEW), made)

        def reported() -> bool:
            found = api.must("GET", path(CLUSTER, space, NEW, made["metadata"]["name"]))
            conditions = found.get("status", {}).get("conditions", [])
            return "Applied" in {each["reason"] for each in conditions}

        wait_until(reported, seconds_max=SETTLES_S, what="its objects are applied")


def pages_commands() -> list[str]:
    """The lines of the pages that say how to hold the level, and to name a version."""
    text = "".join((ROOT / "docs" / name).read_text() for name in ("upgrade.md", "versions.md"))
    return re.findall(
        r"^(kubectl (?:patch imc CLUSTER .*featureLevel.*|get imagoclusters\..*))$",
        text,
        re.MULTILINE,
    )


def test_what_the_pages_say_to_type_works(api: ApiServerProcess) -> None:
    space = api.namespace("typed")
    api.must("POST", path(CLUSTER, space, NEW), placed(CLUSTER, space, NEW))
    said: list[object] = []
    environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig(namespace=space))}
    commands = pages_commands()
    assert len(commands) == 4
    for command in commands:
        words = shlex.split(command.replace("CLUSTER", "demo"))
        done = subprocess.run(
            [str(programs() / "kubectl"), *words[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        assert "demo" in done.stdout
        if words[1] == "patch":
            said.append(
                api.must("GET", path(CLUSTER, space, VERSION, "demo"))["spec"].get("featureLevel")
            )
    assert said == [1, None]
