"""Where backups go in a broker's pod, and the backup that a new member begins with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from imago_cli.backups.command import restore
from imago_cli.line.declared import parameters_of
from imago_operator.manifests.brokers import pod_template, stateful_set, template_notes
from imago_operator.model.desired import Desired, OperatorInfo, desired_of
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.operated.resources import as_brokers_read, told_of, wanted
from imago_testing.operated.world import ClusterWorld

BUCKET: dict[str, Any] = {
    "url": "s3://bucket/demo",
    "endpoint": "https://minio:9000",
    "region": "eu-1",
    "credentialsSecretName": "bucket-key",
}
RECOVERY: dict[str, Any] = {
    "spec.bootstrap.recovery": BUCKET | {"backup": "monday", "pointInTime": "2027-05-03T10:00:00Z"}
}


def begun(changes: dict[str, Any]) -> Any:
    """Return a cluster whose shards have all begun."""
    return replace(wanted(changes), recovers=False)


def test_brokers_are_told_where_backups_go() -> None:
    desired = wanted({"spec.backup": BUCKET})
    section = as_brokers_read(desired).backup
    assert (section.url, section.endpoint, section.region) == (
        "s3://bucket/demo", "https://minio:9000", "eu-1"
    )  # fmt: skip
    assert section.credentials_folder == "/etc/imago/backup"
    spec = pod_template(desired, 0)["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "backup"]
    assert volume["secret"] == {"secretName": "bucket-key", "defaultMode": 0o440}
    mounts = spec["containers"][0]["volumeMounts"]
    assert {"name": "backup", "mountPath": "/etc/imago/backup", "readOnly": True} in mounts
    assert template_notes(desired, 0) != template_notes(wanted(), 0)  # that takes a restart


def test_a_claim_in_place_of_a_bucket() -> None:
    desired = wanted({"spec.backup": {"claimName": "backups"}})
    assert as_brokers_read(desired).backup.url == "file:///backups"
    spec = pod_template(desired, 0)["spec"]
    assert {"name": "backup", "mountPath": "/backups"} in spec["containers"][0]["volumeMounts"]
    assert {
        "name": "backup", "persistentVolumeClaim": {"claimName": "backups"}
    } in spec["volumes"]  # fmt: skip


def test_a_member_without_data_begins_with_the_backup() -> None:
    spec = pod_template(wanted(RECOVERY), 1)["spec"]
    (container,) = spec["initContainers"]
    assert container["image"] == spec["containers"][0]["image"]
    assert container["args"] == [
        *("backup", "restore", "monday", "--from", "s3://bucket/demo", "--to", "/data"),
        *("--shard", "shard-1", "--once", "--until", "2027-05-03T10:00:00Z"),
        *("--endpoint", "https://minio:9000", "--region", "eu-1"),
        *("--credentials-folder", "/etc/imago/recovery"),
    ]
    known = {word for one in parameters_of(restore) for word in one.words}
    assert {word for word in container["args"] if word.startswith("--")} <= known
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounted == {"/data", "/tmp", "/etc/imago/recovery"}
    assert "backup.url" not in told_of(pod_template(wanted(RECOVERY), 1))


def test_once_all_have_begun_nothing_needs_the_bucket_and_nobody_is_restarted() -> None:
    desired = wanted(RECOVERY)
    spec = pod_template(begun(RECOVERY), 0)["spec"]
    assert "initContainers" not in spec
    assert "recovery" not in {each["name"] for each in spec["volumes"]}
    assert template_notes(desired, 0) == template_notes(begun(RECOVERY), 0)
    assert template_notes(desired, 0) == template_notes(wanted(), 0)
    before, after = stateful_set(desired, 0), stateful_set(begun(RECOVERY), 0)
    assert before["spec"] != after["spec"]


@pytest.mark.parametrize("changes", [RECOVERY, {}], ids=["with a backup", "without"])
def test_it_is_noted_when_every_shard_is_led(changes: dict[str, Any]) -> None:
    world = ClusterWorld(wanted({"spec.brokers.shards": 2} | changes))
    world.look()
    assert world.status.recovered_from is None
    world.settle()
    assert world.status.recovered_from == ("monday" if changes else None)


def test_what_is_noted_counts() -> None:
    cluster = manifest("ImagoCluster", RECOVERY)
    for noted in (None, "monday"):
        cluster["status"] = {"recoveredFrom": noted}
        desired = desired_of(cluster, OperatorInfo(version="0.1.0"))
        assert isinstance(desired, Desired)
        assert desired.recovers == (noted is None)
