"""A bucket for old messages in the objects of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from imago_operator.manifests.brokers import pod_template
from imago_operator.model.desired import UnreadableSpec, desired_of
from imago_testing.operated.resources import OPERATOR, as_brokers_read, resource, told_of, wanted

BUCKET: dict[str, Any] = {
    "spec.brokers.tieredStorage": {
        "url": "s3://messages/production",
        "endpoint": "http://minio.minio:9000",
        "region": "eu-central-1",
        "credentialsSecretName": "minio",
        "localRetention": "6h",
        "cacheSize": "2Gi",
    },
    "spec.brokers.config": {"store.retention_ms": 7_776_000_000},
}


def test_pods_have_the_bucket_and_its_credentials() -> None:
    pod = pod_template(wanted(BUCKET), 1)
    read = as_brokers_read(wanted(BUCKET))
    assert read.store.retention_ms == 7_776_000_000
    assert (read.tier.url, read.tier.endpoint) == (
        "s3://messages/production",
        "http://minio.minio:9000",
    )
    assert read.tier.region == "eu-central-1"
    assert read.tier.credentials_folder == "/etc/imago/bucket"
    assert (read.tier.local_retention_ms, read.tier.cache_bytes_max) == (21_600_000, 2 << 30)
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "bucket"]
    assert volume["secret"]["secretName"] == "minio"
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    (mount,) = [each for each in mounts if each["name"] == "bucket"]
    assert mount == {"name": "bucket", "mountPath": "/etc/imago/bucket", "readOnly": True}


def test_a_bucket_by_the_pods_own_identity_needs_no_secret() -> None:
    spec = {"spec.brokers.tieredStorage": {"url": "gs://messages"}}
    pod = pod_template(wanted(spec), 1)
    assert not [each for each in pod["spec"]["volumes"] if each["name"] == "bucket"]
    assert as_brokers_read(wanted(spec)).tier.credentials_folder == ""
    assert as_brokers_read(wanted(spec)).tier.cache_bytes_max == 1 << 30


def test_pods_of_other_clusters_hear_nothing_of_it() -> None:
    told = told_of(pod_template(wanted(), 1))
    assert not [name for name in told if name.startswith("IMAGO__TIER__")]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spec.brokers.tieredStorage": {"url": "http://x"}}, "url"),
        ({"spec.brokers.tieredStorage": {"url": "file:///data/x"}}, "url"),
        ({"spec.brokers.tieredStorage": {}}, "url"),
        ({"spec.brokers.tieredStorage": {"url": "s3://b", "cacheSize": "63Mi"}}, "64Mi"),
        ({"spec.brokers.tieredStorage": {"url": "s3://b", "endpoint": "minio:9000"}}, "endpoint"),
        (BUCKET | {"spec.brokers.config": {"tier.region": "x"}}, "leave them out"),
    ],
)
def test_what_no_broker_could_use_is_refused(changes: dict[str, Any], said: str) -> None:
    found = desired_of(resource(changes), OPERATOR)
    assert isinstance(found, UnreadableSpec)
    assert said in found.problem
