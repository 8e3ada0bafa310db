"""Orders to the operator: which annotation is set on what, and what is refused."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.kubernetes.custom_resources import REBALANCE, manifest
from imago_testing.operated.resources import resource

if TYPE_CHECKING:
    from imago_testing.kubernetes.plugin import Kube

CLUSTERS, REBALANCES = "imagoclusters.imago.dev", "imagorebalances.imago.dev"


def waiting(*ids: str) -> dict[str, Any]:
    approvals = [{"id": one, "kind": "Restart", "summary": "Restart 6 pods."} for one in ids]
    return {**resource(), "status": {"pendingApprovals": approvals}}


def proposed(**spec: object) -> dict[str, Any]:
    made = manifest(REBALANCE, {f"spec.{name}": value for name, value in spec.items()}, "move")
    return {**made, "status": {"phase": "Proposed"}}


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("pause", "imago.dev/pause-reconciliation=true"),
        ("resume", "imago.dev/pause-reconciliation-"),
    ],
)
def test_a_pause_is_an_annotation(kube: Kube, command: str, note: str) -> None:
    assert kube.run(command, "demo").code == 0
    assert kube.calls() == [["annotate", CLUSTERS, "demo", "--overwrite", note]]


def test_a_restart_is_a_moment(kube: Kube) -> None:
    done = kube.run("restart", "demo", "-o", "json")
    told = json.loads(done.out)["annotations"]["imago.dev/restart"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told)
    assert kube.calls()[0][-1] == f"imago.dev/restart={told}"


def test_one_pod_is_restarted(kube: Kube) -> None:
    labels = {"imago.dev/cluster": "demo"}
    kube.objects["pods"] = [{"metadata": {"name": "demo-s0-1", "labels": labels}}]
    assert kube.run("restart", "demo", "--pod", "demo-s0-1").code == 0
    assert kube.calls()[-1][:3] == ["annotate", "pods", "demo-s0-1"]


def test_a_pod_of_somebody_else_is_left_alone(kube: Kube) -> None:
    kube.objects["pods"] = [{"metadata": {"name": "other", "labels": {}}}]
    done = kube.run("restart", "demo", "--pod", "other")
    assert done.code == 1
    assert "is not one of demo" in done.err
    assert not any("annotate" in call for call in kube.calls())


def test_the_only_thing_that_waits_is_approved(kube: Kube) -> None:
    kube.objects[CLUSTERS] = [waiting("restart-1")]
    assert kube.run("approve", "demo").code == 0
    assert kube.calls()[-1][-1] == "imago.dev/approve=restart-1"


def test_of_several_things_one_is_named(kube: Kube) -> None:
    kube.objects[CLUSTERS] = [waiting("restart-1")]
    kube.objects[REBALANCES] = [proposed(approval="Manual")]
    done = kube.run("approve", "demo")
    assert done.code == 1
    assert "restart-1" in done.err
    assert "move" in done.err
    assert kube.run("approve", "demo", "move").code == 0
    assert kube.calls()[-1][:3] == ["annotate", REBALANCES, "move"]


def test_only_what_waits_can_be_approved(kube: Kube) -> None:
    kube.objects[CLUSTERS] = [waiting()]
    kube.objects[REBALANCES] = [proposed(approval="Auto")]
    done = kube.run("approve", "demo")
    assert (done.code, "nothing of demo waits" in done.err) == (1, True)
    kube.objects[CLUSTERS] = [waiting("restart-1")]
    done = kube.run("approve", "demo", "restart-0")
    assert (done.code, "restart-1" in done.err) == (1, True)
