"""What lies in the chart beside its templates, looked at without Helm."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from imago_tools import chart_files
from imago_tools.chart_files import CHART, ROOT, leaves, schema
from imago_tools.chart_helm import INSTALL, chart_hash, head


def test_made_files_are_what_their_sources_say() -> None:
    found = chart_files.files()
    stale = [name for name, text in found.items() if (ROOT / name).read_text() != text]
    assert found
    assert stale == [], "run `make docs`"


def test_no_definition_is_left_over() -> None:
    copies = {path.name for path in (CHART / "files" / "crds").iterdir()}
    assert copies == {path.name for path in (ROOT / "manifests" / "crds").iterdir()}


def test_install_yaml_is_made_of_this_chart() -> None:
    assert INSTALL.read_text().startswith(head()), "run `make docs`"
    assert chart_hash() in head()


def test_install_yaml_is_whole_and_knows_nothing_of_helm() -> None:
    text = INSTALL.read_text()
    found = list(yaml.safe_load_all(text))
    assert {"Namespace", "Deployment", "ClusterRole", "CustomResourceDefinition"} <= {
        each["kind"] for each in found
    }
    assert "helm" not in text.partition("---")[2].lower()


def test_the_chart_is_of_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert chart["version"] == chart["appVersion"] == version.group(1)


def objects(node: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    found = [(path, node)]
    for name, part in node["properties"].items():
        if "properties" in part:
            found += objects(part, f"{path}.{name}")
    return found


@pytest.mark.parametrize(("path", "node"), objects(schema(), "values"))
def test_unknown_values_are_refused_everywhere(path: str, node: dict[str, Any]) -> None:
    assert node["additionalProperties"] is False, path


@pytest.mark.parametrize(("path", "part"), [*leaves(schema())])
def test_every_value_explains_itself(path: str, part: dict[str, Any]) -> None:
    assert part["description"].endswith("."), path
    assert "type" in part, path


def test_values_are_the_defaults_of_the_schema() -> None:
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    for path, part in leaves(schema()):
        node: Any = given
        for name in path.split("."):
            node = node[name]
        assert node == part["default"], path


def test_the_writer_writes(tmp_path: Any) -> None:
    assert chart_files.main([str(tmp_path)]) == 0
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert written == set(chart_files.files())
