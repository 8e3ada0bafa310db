"""The definitions that an API server gets, and the pages that people get."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from imago_operator.spec import crd, reference
from imago_operator.spec.kinds import CLUSTER, KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SIZE_MAX = 100_000
"""A client-side apply stores an object in an annotation of 256 KiB; ours stay far below."""


def walk(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from walk(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from walk(schema[key], f"{path}[]")


def of(kind: Kind[Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(walk(crd.root_schema(kind), kind.name))


def test_files_are_what_the_types_say() -> None:
    folder = ROOT / "manifests" / "crds"
    assert {path.name: path.read_text() for path in folder.iterdir()} == crd.files(), (
        "run `make docs`"
    )


def test_the_page_is_what_the_types_say() -> None:
    assert (ROOT / "docs/reference/crds.md").read_text() == reference.page(), "run `make docs`"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_definitions_are_small(kind: Kind[Any]) -> None:
    whole = crd.definition(kind)
    # A plain `kubectl apply` keeps all of it in an annotation of at most 262,144 bytes.
    assert len(json.dumps(whole)) < SIZE_MAX * len(whole["spec"]["versions"])
    assert yaml.safe_load(crd.files()[f"{kind.plural}.yaml"]) == crd.definition(kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_explains_itself(kind: Kind[Any]) -> None:
    silent = [
        path
        for path, schema in of(kind)
        if "[]" not in path.rsplit(".", 1)[-1]
        and not path.endswith(".metadata")
        and not schema.get("description", "").endswith(".")
    ]
    assert [path for path in silent if path != f"{kind.name}.metadata"] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_everything_has_a_limit(kind: Kind[Any]) -> None:
    """A server adds up what rules may cost, and refuses those on lists and texts without end."""
    endless = []
    for path, schema in of(kind):
        open_text = schema.get("type") == "string" and not {"maxLength", "enum"} & schema.keys()
        open_list = schema.get("type") == "array" and "maxItems" not in schema
        open_map = "additionalProperties" in schema and "maxProperties" not in schema
        if open_text or open_list or open_map:
            endless.append(path)
    assert [p for p in endless if p not in {f"{kind.name}.kind", f"{kind.name}.apiVersion"}] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_names_are_those_of_the_conventions(kind: Kind[Any]) -> None:
    names = {path.rsplit(".", 1)[-1].removesuffix("[]") for path, _ in of(kind)} - {kind.name}
    assert [name for name in names if not re.fullmatch(r"[a-z][A-Za-z0-9]*", name)] == []
    status = crd.root_schema(kind)["properties"]["status"]["properties"]
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert "observedGeneration" in status
    phases = [
        path for path, schema in of(kind) if schema.get("type") == "boolean" and "status" in path
    ]
    assert phases == []


def test_short_names_and_category() -> None:
    names = [crd.definition(kind)["spec"]["names"] for kind in KINDS]
    assert [name["shortNames"] for name in names] == [
        ["imc"],
        ["imt"],
        ["img"],
        ["imu"],
        ["imr"],
        ["imb"],
        ["imsb"],
        ["imm"],
        ["imp"],
    ]
    assert all(name["categories"] == ["imago"] for name in names)


def test_a_cluster_is_scaled_by_its_shards() -> None:
    scale = crd.definition(CLUSTER)["spec"]["versions"][0]["subresources"]["scale"]
    assert scale["specReplicasPath"] == ".spec.brokers.shards"


def test_the_writers_write(tmp_path: Path) -> None:
    assert crd.main([str(tmp_path / "crds")]) == 0
    assert reference.main([str(tmp_path / "crds.md")]) == 0
    assert len(list((tmp_path / "crds").iterdir())) == len(KINDS)
    assert (tmp_path / "crds.md").read_text() == reference.page()
