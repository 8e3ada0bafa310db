"""Samples are read as the operator reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from imago_operator.manifests.render import render
from imago_operator.model.desired import Desired, OperatorInfo, desired_of
from imago_operator.spec.kinds import API_VERSION, KINDS

SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
KIND = {kind.name: kind for kind in KINDS}
OBJECTS: list[dict[str, Any]] = [
    found
    for path in sorted(SAMPLES.glob("*.yaml"))
    for found in yaml.safe_load_all(path.read_text())
]


@pytest.mark.parametrize("sample", OBJECTS, ids=lambda sample: sample["metadata"]["name"])
def test_samples_are_accepted(sample: dict[str, Any]) -> None:
    kind = KIND[sample["kind"]]

    assert sample["apiVersion"] == API_VERSION
    assert list(kind.problems(sample, sample)) == []
    assert kind.read(sample)


def test_samples_are_all_there_and_of_every_kind_that_people_write() -> None:
    assert {path.stem for path in SAMPLES.iterdir()} == {
        "laptop",
        "three-zones",
        "external-zookeeper",
        "closed",
        "topic",
        "group",
        "user",
        "pipeline",
        "parse",
        "audit",
        "replay",
        "aggregate",
        "compact",
        "report",
        "topic_stats",
        "lag_latency",
        "dlq_triage",
        "rebalance",
        "backup",
        "mirror",
    }
    assert {found["kind"] for found in OBJECTS} == {kind.name for kind in KINDS}


@pytest.mark.parametrize("name", ["laptop", "three-zones", "external-zookeeper", "closed"])
def test_clusters_of_samples_can_be_made(name: str) -> None:
    sample = next(yaml.safe_load_all((SAMPLES / f"{name}.yaml").read_text()))
    desired = desired_of(sample, OperatorInfo(version="0.1.0"))

    assert isinstance(desired, Desired), desired
    assert len([m for m in render(desired, [0]) if m["kind"] == "StatefulSet"]) >= 1


def test_samples_refer_to_a_cluster_that_is_a_sample() -> None:
    clusters = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "ImagoCluster"}
    specs = [each["spec"] for each in OBJECTS]
    wanted = {spec["clusterRef"]["name"] for spec in specs if "clusterRef" in spec}
    assert wanted <= clusters
