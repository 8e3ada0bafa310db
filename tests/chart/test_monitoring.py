"""Alerts and dashboard ask for metrics that are there, with labels that these have."""

from __future__ import annotations

import asyncio
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from imago_broker.metrics import registry
from imago_broker.model.topics.topics import TopicConfig
from imago_mirror import telling
from imago_operator.runtime.metrics import Metrics
from imago_testing.clusters.shard_brokers import ShardBrokers
from imago_testing.kubernetes.promql import asked, exposed, grouped_by, is_balanced
from imago_testing.kubernetes.scalers import triggers
from imago_testing.processes.certificates import Authority
from imago_tools.chart_files import CHART, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TARGET = frozenset({"namespace", "pod", "imago_dev_cluster", "imago_dev_shard"})
"""Labels that the PodMonitors put on everything."""
MIRROR: dict[str, Any] = {
    "name": "dr",
    "state": "copying",
    "topics": {"orders": {"lagMessages": 1, "lagSeconds": 2.0, "copiedMessages": 3, "expired": 0}},
    "troubles": [],
}
SEVERITIES = {"critical", "warning"}


@cache
def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> Iterator[tuple[str, str]]:
    """Each expression of the dashboard with the title of its panel."""
    board = json.loads((CHART / "files/dashboards/imago.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]


SCALED = ("KEDA", triggers()["prometheus"]["query"])
EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in alerts()] + [*panels(), SCALED]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What a shard of two members shows, with a group that has read something."""
    found: dict[str, set[str]] = {}
    for page in asyncio.run(scraped(tmp_path_factory.mktemp("metrics"))):
        for name, labels in exposed(page).items():
            found.setdefault(name, set()).update(labels)
    for name, labels in exposed(generate_latest(operator_figures()).decode()).items():
        found.setdefault(name, set()).update(labels)
    for name, labels in exposed(telling.metrics(MIRROR)).items():
        found.setdefault(name, set()).update(labels)
    # Told once callers were refused, of which there were none.
    return found | {"imago_shard_refused_total": {"reason"}}


def operator_figures() -> CollectorRegistry:
    """All figures of an operator that has worked on something."""
    figures = Metrics(lambda: 1000.0)
    figures.watch_work(lambda: 0, dict)
    figures.watch_clusters(lambda: 1, lambda: 0, lambda: 0, lambda: 0)
    figures.watch_certificates(lambda: [("mq", "demo", "shard-0", 2000.0)])
    figures.watch_leader(lambda: True)
    figures.watch_events(lambda: 0)
    figures.finished("ImagoCluster", "done", 0.1)
    figures.called("list", "pods", 200)
    return figures.registry


async def scraped(folder: Path) -> list[str]:
    pair = Authority(folder).issue("server")
    tls = (f"tls.certificate_file={pair.certificate}", f"tls.key_file={pair.key}")
    shard = ShardBrokers(folder, *tls, f"tier.url=file://{folder}/bucket", replicas=2)
    await shard.start(0, 1)
    try:
        leader = shard.brokers[await shard.led()]
        await shard.all_in_sync(0, 1)
        leader.topics.create_or_update(TopicConfig(name="orders", write_queues=1, read_queues=1))
        leader.offsets.commit("billing", "orders", 0, 0)
        return [
            generate_latest(registry(broker.collector)).decode()
            for broker in shard.brokers.values()
        ]
    finally:
        await shard.close()


@pytest.mark.parametrize(
    ("name", "expression"),
    EXPRESSIONS,
    ids=[f"{n}-{name}" for n, (name, _) in enumerate(EXPRESSIONS)],
)
def test_metrics_and_labels_are_there(
    name: str, expression: str, metrics: dict[str, set[str]]
) -> None:
    assert is_balanced(expression), name
    used = list(asked(expression))
    assert used, f"{name} asks for nothing of ours"
    for metric, labels in used:
        assert metric in metrics, f"{name}: {metric}"
        assert labels <= metrics[metric] | TARGET, f"{name}: {metric}"
    known = set().union(*(metrics[metric] for metric, _ in used)) | TARGET
    assert grouped_by(expression) <= known, name


def test_what_is_not_there_is_found() -> None:
    """The check itself: names, labels, brackets."""
    text = 'rate(imago_gone_total{pod="x", of=~"y"}[5m]) * on (pod) imago_b'
    none: frozenset[str] = frozenset()
    assert list(asked(text)) == [("imago_gone_total", none | {"pod", "of"}), ("imago_b", none)]
    assert grouped_by("sum by (imago_x, pod) (imago_y)") == {"imago_x", "pod"}
    assert not is_balanced("sum(a[5m)")
    with pytest.raises(AssertionError, match="twice"):
        exposed('a{b="c"} 1.0\na{b="c"} 2.0\n')


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_alerts_say_what_to_do_and_wait_before_they_call(rule: dict[str, Any]) -> None:
    notes, page = rule["annotations"], (ROOT / "docs/runbook.md").read_text()
    assert rule["labels"]["severity"] in SEVERITIES
    assert notes["summary"]
    assert notes["description"]
    file, anchor = notes["runbook_url"].split("#")
    assert file == "docs/runbook.md"
    assert anchor in {
        slug(line.lstrip("# ")) for line in page.splitlines() if line.startswith("##")
    }
    # What looks back over an hour by itself need not wait on top.
    assert "for" in rule or "[1h]" in rule["expr"]
    shown = set(re.findall(r"\$labels\.(\w+)", json.dumps(notes)))
    left = grouped_by(rule["expr"])
    assert shown <= (left or TARGET | {"port"}), "a label that the expression has taken away"


def slug(title: str) -> str:
    """Return the anchor that a page has for a title."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def test_the_runbook_speaks_of_alerts_that_exist() -> None:
    page = (ROOT / "docs/runbook.md").read_text()
    kinds = "Cluster|Topic|Consumer|Rebalance|Pipeline|User|Backup|ScheduledBackup|Mirror\\b"
    said = set(re.findall(rf"\bImago(?!{kinds})[A-Z]\w+", page))
    assert said <= {rule["alert"] for rule in alerts()}


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    board = json.loads((CHART / "files/dashboards/imago.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(places) == len(set(places))
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in board["panels"])
