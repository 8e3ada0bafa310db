"""What a real API server makes of our definitions: it takes them, and refuses what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from imago_operator.kube.resources import RESOURCES
from imago_testing.kubernetes.custom_resources import BAD_EDITS, GOOD, BadEdit, manifest

if TYPE_CHECKING:
    from imago_testing.kubernetes.api_server import ApiServerProcess

ROOT = Path(__file__).parents[3]
STRICT = "dryRun=All&fieldValidation=Strict"
"""As kubectl asks it."""
pytestmark = pytest.mark.apiserver


def _path(kind: str, name: str = "") -> str:
    return RESOURCES[kind].path("default", name)


def _placed(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "metadata": {**found["metadata"], "namespace": "default"}}


@pytest.mark.parametrize("kind", GOOD)
def test_good_objects_are_taken(api: ApiServerProcess, kind: str) -> None:
    api.must("POST", f"{_path(kind)}?{STRICT}", _placed(manifest(kind)))


def test_all_of_install_yaml_is_taken(api: ApiServerProcess) -> None:
    """As a dry run: its namespace is not made, so what goes there is tried in another one."""
    taken = []
    for found in yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text()):
        meta, group = found["metadata"], found["apiVersion"]
        base = f"/apis/{group}" if "/" in group else f"/api/{group}"
        if "namespace" in meta:
            meta["namespace"] = "default"
            base += "/namespaces/default"
        path = f"{base}/{_plural(found['kind'])}/{meta['name']}"
        query = f"{STRICT}&fieldManager=install&force=true"
        api.must("PATCH", f"{path}?{query}", found, content="application/apply-patch+yaml")
        taken.append(found["kind"])
    assert {"CustomResourceDefinition", "Deployment", "ValidatingAdmissionPolicy"} <= set(taken)


def _plural(kind: str) -> str:
    return f"{kind[:-1]}ies".lower() if kind.endswith("y") else f"{kind}s".lower()


@pytest.mark.parametrize("bad", BAD_EDITS, ids=[f"{n}-{b.kind}" for n, b in enumerate(BAD_EDITS)])
def test_bad_edits_are_refused_with_our_words(api: ApiServerProcess, bad: BadEdit) -> None:
    if bad.old is None:
        status, answer = api.call("POST", f"{_path(bad.kind)}?{STRICT}", _placed(bad.object))
    else:
        made = api.must("POST", _path(bad.kind), _placed(bad.old))
        version = {"resourceVersion": made["metadata"]["resourceVersion"]}
        edited = _placed(bad.object)
        edited["metadata"] |= version
        name = made["metadata"]["name"]
        status, answer = api.call("PUT", f"{_path(bad.kind, name)}?{STRICT}", edited)
        api.must("DELETE", _path(bad.kind, name))
    assert status in (400, 422), answer
    assert bad.said in answer["message"]


def test_columns_of_kubectl_get_are_those_of_the_kinds(api: ApiServerProcess) -> None:
    for kind in GOOD:
        found = api.must(
            "GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{_crd(kind)}"
        )
        columns = found["spec"]["versions"][0]["additionalPrinterColumns"]
        assert columns[0]["name"] == "Ready"
        assert {c["type"] for c in found["status"]["conditions"] if c["status"] == "True"} >= {
            "Established",
            "NamesAccepted",
        }
        structural = [
            c for c in found["status"]["conditions"] if c["type"] == "NonStructuralSchema"
        ]
        assert structural == []


def _crd(kind: str) -> str:
    return f"{RESOURCES[kind].plural}.imago.dev"
