"""Kubernetes objects of a cluster."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.clusters.admin_http import TOKEN_VARIABLE
from imago_operator.manifests.brokers import pod_template, stateful_set
from imago_operator.manifests.common import applied_hash
from imago_operator.manifests.render import render
from imago_operator.manifests.zookeeper import config_files, zookeeper_notes
from imago_operator.model import names
from imago_operator.spec.crd import as_yaml
from imago_testing.operated.resources import OPERATOR, wanted

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired

GOLDEN = Path(__file__).parent / "golden"
EXTERNAL = {"external": {"servers": ["zk-0.zk:2181", "zk-1.zk:2181"], "chroot": "/mq"}}
CASES: dict[str, dict[str, Any]] = {
    "laptop": {
        "spec.brokers": {
            "replicasPerShard": 1,
            "antiAffinity": "None",
            "storage": {"type": "Ephemeral"},
        },
        "spec.zookeeper.managed": {"replicas": 1},
        "spec.podDisruptionBudget": {"enabled": False},
        "spec.networkPolicy": {"enabled": False},
    },
    "zones": {
        "spec.brokers.antiAffinity": "Required",
        "spec.brokers.storage.storageClassName": "fast",
        "spec.brokers.resources": {"requests": {"cpu": 2, "memory": "4Gi"}},
        "spec.brokers.config": {"store.scrub_interval_ms": 3600000, "metaq.stat": "true"},
    },
    "listeners": {
        "spec.brokers.shards": 1,
        "spec.zookeeper.managed": {"replicas": 1},
        "spec.listeners": [
            {"name": "in", "type": "Internal"},
            {"name": "lb", "type": "LoadBalancer", "loadBalancerSourceRanges": ["198.51.100.0/24"]},
            {
                "name": "out",
                "type": "NodePort",
                "firstNodePort": 31000,
                "metaq": {"zookeeperSourceRanges": ["10.0.0.0/8"]},
                "perBroker": {
                    "firstPort": 41000,
                    "annotations": {"dns": "{pod}.{namespace}.example.org"},
                    "labels": {"place": "{shard}-{ordinal}"},
                },
            },
        ],
    },
    "outside": {
        "spec.brokers.shards": 1,
        "spec.zookeeper": EXTERNAL,
        "spec.listeners": [
            {
                "name": "out",
                "type": "NodePort",
                "firstNodePort": 31000,
                "firstGrpcNodePort": 31500,
                "advertisedHostTemplate": "mq-{shard}-{ordinal}.example.org",
            }
        ],
    },
}


def rendered(case: str) -> tuple[dict[str, Any], ...]:
    desired = wanted(CASES[case])
    return render(desired, range(desired.spec.brokers.shards))


@pytest.mark.parametrize("case", CASES)
def test_objects_are_those_on_record(case: str) -> None:
    """With IMAGO_REWRITE=1 the record is made anew: read what changed before you commit it."""
    text = "---\n".join(as_yaml(manifest) for manifest in rendered(case))
    path = GOLDEN / f"{case}.yaml"
    if os.environ.get("IMAGO_REWRITE"):
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_owned_labelled_and_stamped(case: str) -> None:
    objects = rendered(case)
    assert len({(o["kind"], o["metadata"]["name"]) for o in objects}) == len(objects)
    for manifest in objects:
        metadata = manifest["metadata"]
        assert metadata["namespace"] == "mq"
        assert metadata["ownerReferences"][0]["blockOwnerDeletion"] is True
        assert metadata["labels"][names.CLUSTER_LABEL] == "demo"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == names.MANAGER
        assert applied_hash(manifest)
        assert len(metadata["name"]) <= 63


def pods(desired: Desired) -> list[dict[str, Any]]:
    objects = render(desired, range(desired.spec.brokers.shards))
    return [o["spec"]["template"]["spec"] for o in objects if o["kind"] == "StatefulSet"]


@pytest.mark.parametrize("case", CASES)
def test_pods_satisfy_pod_security_restricted(case: str) -> None:
    for spec in pods(wanted(CASES[case])):
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        assert not any("hostPath" in volume for volume in spec["volumes"])
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert not any("hostPort" in port for port in container["ports"])


@pytest.mark.parametrize("case", CASES)
def test_every_mount_has_its_volume(case: str) -> None:
    for manifest in rendered(case):
        if manifest["kind"] == "StatefulSet":
            spec = manifest["spec"]["template"]["spec"]
            claims = manifest["spec"].get("volumeClaimTemplates", ())
            known = {v["name"] for v in spec["volumes"]} | {c["metadata"]["name"] for c in claims}
            mounted = {m["name"] for c in spec["containers"] for m in c["volumeMounts"]}
            assert mounted == known


def test_services_find_pods_and_ports() -> None:
    objects = rendered("zones")
    templates = [o["spec"]["template"] for o in objects if o["kind"] == "StatefulSet"]
    for service in (o for o in objects if o["kind"] == "Service"):
        chosen = service["spec"]["selector"].items()
        found = [t for t in templates if chosen <= t["metadata"]["labels"].items()]
        assert found, service["metadata"]["name"]
        for template in found:
            ports = {p["name"] for p in template["spec"]["containers"][0]["ports"]}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_names_that_others_call() -> None:
    services = {o["metadata"]["name"] for o in rendered("zones") if o["kind"] == "Service"}
    assert {"demo-bootstrap", "demo-brokers", "demo-admin", "demo-zookeeper"} <= services


def test_a_stopped_shard_keeps_everything_but_its_pods() -> None:
    running = {o["metadata"]["name"]: o for o in render(wanted(), [0, 1])}
    stopped = {o["metadata"]["name"]: o for o in render(wanted(), [0, 1], stopped=[1])}
    assert running.keys() == stopped.keys()
    assert stopped["demo-s1"]["spec"]["replicas"] == 0
    assert stopped["demo-s0"] == running["demo-s0"]


def test_servers_of_zookeeper_have_the_users_parts_too() -> None:
    volume = {"name": "audit", "emptyDir": {}}
    mount = {"name": "audit", "mountPath": "/audit"}
    template = {"volumes": [volume], "container": {"volumeMounts": [mount]}}
    edits: tuple[dict[str, Any], ...] = ({}, {"spec.zookeeper.managed.template": template})
    made = [each for edit in edits for each in render(wanted(edit), range(1))]
    servers = [
        e for e in made if e["kind"] == "StatefulSet" and "-zookeeper" in e["metadata"]["name"]
    ]
    pods = [each["spec"]["template"]["spec"] for each in servers]
    assert pods[1]["volumes"] == [*pods[0]["volumes"], volume]
    mounts = [pod["containers"][0]["volumeMounts"] for pod in pods]
    assert mounts[1] == [*mounts[0], mount]


def test_user_parts_are_added_and_ours_win() -> None:
    template = {
        "pod": {
            "metadata": {"labels": {"team": "a", names.CLUSTER_LABEL: "other"}},
            "securityContext": {"runAsUser": 2000},
            "tolerations": [{"operator": "Exists"}],
            "sidecars": [{"name": "watcher", "image": "w:1"}],
        },
        "container": {"env": [{"name": "TZ", "value": "UTC"}]},
    }
    made = pod_template(wanted({"spec.brokers.template": template}), 0)

    assert made["metadata"]["labels"]["team"] == "a"
    assert made["metadata"]["labels"][names.CLUSTER_LABEL] == "demo"
    assert made["spec"]["securityContext"]["runAsUser"] == 2000
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert [c["name"] for c in made["spec"]["containers"]] == ["broker", "watcher"]
    assert {"name": "TZ", "value": "UTC"} in made["spec"]["containers"][0]["env"]


def notes(desired: Desired) -> dict[str, str]:
    found: dict[str, str] = pod_template(desired, 0)["metadata"]["annotations"]
    return found


def test_a_new_operator_changes_the_template_but_not_what_the_user_said() -> None:
    newer = notes(wanted(operator=replace(OPERATOR, version="1.3.0")))
    assert newer[names.TEMPLATE_HASH] != notes(wanted())[names.TEMPLATE_HASH]
    assert newer[names.SPEC_HASH] == notes(wanted())[names.SPEC_HASH]


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.brokers.shards": 5},
        {"spec.brokers.storage.size": "1Ti"},
        {"spec.brokers.config": {"rocketmq.pull_hold_ms_max": 5}},
        {"spec.brokers.minInSync": 3},
        {"spec.brokers.template": {"service": {"metadata": {"labels": {"a": "b"}}}}},
        {
            "spec.brokers.template": {
                "persistentVolumeClaim": {"metadata": {"annotations": {"a": "b"}}}
            }
        },
        {"spec.brokers.storage.volumeAttributesClassName": "fast"},
        {"spec.brokers.storage.persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}},
    ],
)
def test_what_needs_no_restart_leaves_the_template_alone(changes: dict[str, Any]) -> None:
    assert notes(wanted(changes)) == notes(wanted())


def test_what_needs_a_restart_changes_the_template() -> None:
    changed = notes(wanted({"spec.brokers.config": {"store.scrub_interval_ms": 1}}))
    assert changed[names.CONFIG_HASH] != notes(wanted())[names.CONFIG_HASH]
    assert changed[names.TEMPLATE_HASH] != notes(wanted())[names.TEMPLATE_HASH]


def test_a_stateful_set_never_deletes_claims_or_restarts_pods_by_itself() -> None:
    spec = stateful_set(wanted(), 0)["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    assert set(spec["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ({"size": "1Gi"}, "Retain"),
        (
            {"size": "1Gi", "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}},
            "Delete",
        ),
        ({"type": "Ephemeral"}, "Delete"),
    ],
)
def test_what_zookeeper_knows_goes_with_the_logs_it_knows_of(
    storage: dict[str, Any], said: str
) -> None:
    """Or a new cluster of the name waits for members whose disks are gone."""
    desired = wanted({"spec.brokers.storage": storage})
    [found] = [
        m
        for m in render(desired, [0])
        if m["metadata"]["name"] == "demo-zookeeper" and m["kind"] == "StatefulSet"
    ]
    assert found["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": said,
        "whenScaled": "Retain",
    }


@pytest.mark.parametrize("servers", [1, 3, 5])
def test_servers_of_zookeeper_know_each_other(servers: int) -> None:
    """Their number is no part of their pods: another one restarts nobody."""
    desired = wanted({"spec.zookeeper.managed.replicas": servers})
    managed = desired.spec.zookeeper.managed
    assert managed is not None
    files = config_files(desired, managed)
    assert len(re.findall(r"^server\.", files["servers"], re.MULTILINE)) == servers
    assert (files["members"], files["founders"]) == (f"{servers}\n",) * 2
    assert zookeeper_notes(desired) == zookeeper_notes(wanted())


@pytest.mark.parametrize("case", CASES)
def test_commands_in_a_brokers_pod_have_its_token(case: str) -> None:
    """The runbook has people run `imago …` there: without the token brokers refuse them."""
    objects = rendered(case)
    files = {
        config["data"]["broker.toml"].split('token_file = "')[1].split('"')[0]
        for config in objects
        if config["kind"] == "ConfigMap" and "broker.toml" in config["data"]
    }
    told = [
        {entry["name"]: entry.get("value") for entry in container["env"]}
        for each in objects
        if each["kind"] == "StatefulSet"
        for container in each["spec"]["template"]["spec"]["containers"]
        if container["name"] == "broker"
    ]
    assert told
    assert {env.get(TOKEN_VARIABLE) for env in told} == files
