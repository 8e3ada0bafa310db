"""The laptop's sample becomes a cluster for production by the commands of docs/install.md."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from imago_operator.model.actions import DeletePod
from imago_operator.model.desired import Desired, desired_of
from imago_operator.spec.kinds import CLUSTER
from imago_testing.operated.resources import OPERATOR, UID
from imago_testing.operated.world import ClusterWorld

ROOT = Path(__file__).parents[3]
PATCH = re.compile(r"^kubectl -n orders patch imc laptop --type merge -p '(.*)'$", re.MULTILINE)


def merged(into: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return what a merge patch makes of an object."""
    found = deepcopy(into)
    for name, value in patch.items():
        both = isinstance(value, dict) and isinstance(found.get(name), dict)
        found[name] = merged(found[name], value) if both else value
    return found


def as_desired(sample: dict[str, Any]) -> Desired:
    about = {"name": "demo", "namespace": "mq", "uid": UID, "generation": 3}
    found = desired_of(sample | {"metadata": about}, OPERATOR)
    assert isinstance(found, Desired), found
    return found


def test_each_command_is_admitted_and_done_while_the_cluster_serves() -> None:
    sample = yaml.safe_load((ROOT / "manifests/samples/laptop.yaml").read_text())
    page = (ROOT / "docs/install.md").read_text().partition("### From the laptop to production")[2]
    patches = [json.loads(text) for text in PATCH.findall(page.partition("\n### ")[0])]
    assert len(patches) == 5
    world = ClusterWorld(as_desired(sample), expandable={"": True, "fast": True})
    world.settle()
    for patch in patches:
        before, sample = sample, merged(sample, patch)
        assert list(CLUSTER.problems(sample, before)) == []
        world.desired = as_desired(sample)
        for seen, _ in world.settle():
            assert seen.registry is not None
            assert seen.registry.shards[0].master, "the first shard is led all the time"
            assert world.connected
    assert len(world.shards) == 3
    assert all(len(shard.in_sync) == 3 for shard in world.shards.values())
    assert world.ensemble == {0, 1, 2}
    assert {claim.storage_class for claim in world.claims.values()} == {"fast"}
    assert {claim.requested for claim in world.claims.values()} == {200 << 30}
    servers = [a for a in world.done if isinstance(a, DeletePod) and a.shard is None]
    assert servers == [], "none of ZooKeeper's is restarted"
