"""Monitors and alerts on a real API server that has Prometheus' kinds, and through its parser."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from rig.build import monitoring_definitions, promcheck

from imago_testing.kubernetes.api_server import ApiServerProcess, running_api_server
from imago_tools.chart_files import CHART
from imago_tools.chart_helm import NAMESPACE, objects, template

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.apiserver]

GROUP = "monitoring.coreos.com/v1"
PLURALS = {
    "ServiceMonitor": "servicemonitors",
    "PodMonitor": "podmonitors",
    "PrometheusRule": "prometheusrules",
}
EVERYTHING = {
    "metrics": {
        "service": {"enabled": True},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "podMonitor": {"operator": True, "brokers": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    }
}
CONFINED = {"scope": {"namespaces": ["orders"]}}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with running_api_server(tmp_path_factory.mktemp("prometheus") / "server") as server:
        server.install_crds(monitoring_definitions())
        server.namespace(NAMESPACE)
        yield server


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in objects(template(values)) if one["apiVersion"] == GROUP]


def path_of(one: dict[str, Any]) -> str:
    place = f"/apis/{GROUP}/namespaces/{NAMESPACE}/{PLURALS[one['kind']]}"
    return f"{place}/{one['metadata']['name']}"


@pytest.mark.parametrize("scope", [{}, CONFINED], ids=["everywhere", "confined"])
def test_the_server_takes_all_that_the_chart_renders(
    api: ApiServerProcess, scope: dict[str, Any]
) -> None:
    found = rendered(EVERYTHING | scope)
    kinds = sorted(one["kind"] for one in found)
    assert kinds == ["PodMonitor", "PodMonitor", "PrometheusRule", "ServiceMonitor"]
    for one in found:
        kept = api.apply(path_of(one), one)
        assert kept["spec"] == one["spec"], "the server has left something out"


def test_the_server_refuses_what_it_does_not_know(api: ApiServerProcess) -> None:
    (rule,) = (one for one in rendered(EVERYTHING) if one["kind"] == "PrometheusRule")
    rule["spec"]["groups"][0]["rules"][0]["form"] = "30s"
    with pytest.raises(AssertionError, match="form"):
        api.apply(path_of(rule), rule)


def expressions() -> Iterator[str]:
    """What the dashboard asks, each on one line, with an interval as Grafana puts it in."""
    board = json.loads((CHART / "files/dashboards/imago.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            told = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
            yield " ".join(re.sub(r"\$\{?\w+\}?", "x", told).split())


def checked(rules: str, asked: list[str]) -> subprocess.CompletedProcess[str]:
    text = "\n".join([rules.rstrip("\n"), "---", *asked])
    return subprocess.run([promcheck()], input=text, capture_output=True, text=True, check=False)


@pytest.mark.promcheck
def test_prometheus_takes_every_rule_and_every_expression() -> None:
    (rule,) = (one for one in rendered(EVERYTHING) if one["kind"] == "PrometheusRule")
    asked = list(expressions())
    assert len(asked) > 10
    done = checked(yaml.safe_dump(rule["spec"]), asked)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.promcheck
def test_prometheus_names_what_is_wrong() -> None:
    rule = {"alert": "A", "expr": "sum(", "annotations": {"summary": "{{ $labels.x "}}
    groups = yaml.safe_dump({"groups": [{"name": "a", "rules": [rule]}]})
    done = checked(groups, ["rate(imago_x)"])
    assert done.returncode == 1
    assert "could not parse expression" in done.stdout
    assert "summary" in done.stdout
    assert "rate(imago_x)" in done.stdout
