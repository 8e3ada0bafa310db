"""An external ZooKeeper with TLS, and brokers that are a user there: files, settings, addresses."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from imago_operator.contents.connecting import entries_of
from imago_operator.manifests.brokers import pod_template, template_notes
from imago_operator.manifests.config import toml
from imago_operator.manifests.render import render
from imago_operator.model.desired import zookeeper_for_clients
from imago_operator.spec.kinds import CLUSTER
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.operated.resources import as_brokers_read, wanted

SERVERS: dict[str, Any] = {"servers": ["zk-0.zk:2281"], "chroot": "/mq"}
CLOSED = {
    **SERVERS,
    "clientServers": ["zk-0.zk:2181"],
    "tls": {"secretName": "zk-tls", "clientCertificate": True},
    "auth": {"secretName": "zk-user"},
}


def external(**more: Any) -> dict[str, Any]:
    return {"spec.zookeeper": {"external": {**SERVERS, **more}}}


def test_brokers_are_told_whom_to_trust_and_who_they_are() -> None:
    made = wanted(external(**CLOSED))
    told = as_brokers_read(made, IMAGO__ZOOKEEPER__USER="imago").zookeeper
    assert (told.connect, told.user, told.protect) == ("zk-0.zk:2281/mq", "imago", True)
    assert told.tls_ca_file == "/etc/imago/zookeeper-tls/ca.crt"
    assert told.tls_certificate_file == "/etc/imago/zookeeper-tls/tls.crt"
    assert told.tls_key_file == "/etc/imago/zookeeper-tls/tls.key"
    assert told.password_file == "/etc/imago/zookeeper-user/password"
    trusting = as_brokers_read(wanted(external(tls={"secretName": "zk-tls"}))).zookeeper
    assert trusting.tls_ca_file
    assert not trusting.tls_certificate_file
    assert not trusting.user


def test_a_pod_without_the_secrets_begins_again_as_before() -> None:
    """The file that all share changes under the pods that run."""
    before, made = pod_template(wanted(external()), 0), wanted(external(**CLOSED))
    assert tomllib.loads(toml(made.settings))["zookeeper"] == {"connect": "zk-0.zk:2281/mq"}
    told = as_brokers_read(made, before).zookeeper
    assert (told.user, told.password_file, told.tls_ca_file) == ("", "", "")


def test_a_pod_goes_on_at_the_port_that_its_files_are_for() -> None:
    """The servers have moved to a port with TLS in the file that all share."""
    plain = wanted({"spec.zookeeper": {"external": {"servers": ["zk-0.zk:2181"]}}})
    moved = wanted(external(tls={"secretName": "zk-tls"}))
    assert as_brokers_read(moved).zookeeper.connect == "zk-0.zk:2281/mq"
    told = as_brokers_read(moved, pod_template(plain, 0)).zookeeper
    assert (told.connect, told.tls_ca_file) == ("zk-0.zk:2181", "")


def test_each_pod_has_the_files_of_both_secrets_and_its_name_from_one() -> None:
    spec = pod_template(wanted(external(**CLOSED)), 0)["spec"]
    volumes = {one["name"]: one.get("secret") for one in spec["volumes"]}
    assert volumes["zookeeper-tls"] == {"secretName": "zk-tls", "defaultMode": 0o440}
    assert volumes["zookeeper-user"] == {"secretName": "zk-user", "defaultMode": 0o440}
    [container] = spec["containers"]
    mounts = {one["name"]: one for one in container["volumeMounts"]}
    assert mounts["zookeeper-tls"]["mountPath"] == "/etc/imago/zookeeper-tls"
    assert mounts["zookeeper-user"]["mountPath"] == "/etc/imago/zookeeper-user"
    assert mounts["zookeeper-user"]["readOnly"] is True
    [user] = [one for one in container["env"] if one["name"] == "IMAGO__ZOOKEEPER__USER"]
    assert user["valueFrom"] == {"secretKeyRef": {"name": "zk-user", "key": "username"}}
    every = json.dumps([*map(dict, render(wanted(external(**CLOSED)), [0]))], default=dict)
    assert "zk-user" in every


def test_without_them_pods_are_as_they_were() -> None:
    spec = pod_template(wanted(external()), 0)["spec"]
    assert not [one for one in spec["volumes"] if one["name"].startswith("zookeeper")]
    environment = {one["name"] for one in spec["containers"][0]["env"]}
    assert "IMAGO__ZOOKEEPER__USER" not in environment


@pytest.mark.parametrize("name", ["tls", "auth"])
def test_a_change_of_them_restarts_pods_as_somebody_ordered(name: str) -> None:
    """Not as what the operator's own version brought: `Hold` does not hold it."""
    before = template_notes(wanted(external()), 0)
    after = template_notes(wanted(external(**{name: CLOSED[name]})), 0)
    for note in ("imago.dev/template-hash", "imago.dev/spec-hash", "imago.dev/config-hash"):
        assert after[note] != before[note], note
    moved = template_notes(wanted(external(clientServers=["zk-0.zk:2181"])), 0)
    assert moved == before, "what clients are told restarts no broker"


def test_clients_are_told_servers_that_speak_to_them() -> None:
    made = wanted(external(**CLOSED))
    assert made.zookeeper_connect == "zk-0.zk:2281/mq"
    assert zookeeper_for_clients(made.resource, made.spec) == "zk-0.zk:2181/mq"
    cluster = manifest(CLUSTER.name, external(**CLOSED))
    assert entries_of(cluster)["zookeeper"] == "zk-0.zk:2181/mq"
    same = wanted(external())
    assert zookeeper_for_clients(same.resource, same.spec) == same.zookeeper_connect
