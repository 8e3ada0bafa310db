"""Certificates in the objects of a cluster: files that pods read again, and ways in with TLS."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from imago_broker.replication.links.member_tls import member_uri
from imago_operator.brokers.reach import addresses, certificate_secret
from imago_operator.certificates.plan import alternative_names
from imago_operator.manifests.brokers import pod_template, template_notes
from imago_operator.manifests.config import toml
from imago_operator.manifests.render import render
from imago_testing.operated.resources import as_brokers_read, told_of, wanted

TLS: dict[str, Any] = {"spec.tls": {"clients": "Enforcing", "members": "Enforcing"}}
OUT = {
    "name": "out",
    "type": "NodePort",
    "firstNodePort": 31000,
    "advertisedHostTemplate": "mq-{shard}-{ordinal}.example.org",
}


def test_brokers_are_told_where_their_files_are() -> None:
    every = told_of(pod_template(wanted(TLS), 1))
    told = {name: said for name, said in every.items() if name.startswith("IMAGO__TLS__")}
    assert told == {
        "IMAGO__TLS__CERTIFICATE_FILE": "/etc/imago/tls/tls.crt",
        "IMAGO__TLS__KEY_FILE": "/etc/imago/tls/tls.key",
        "IMAGO__TLS__CA_FILE": "/etc/imago/tls/ca.crt",
        "IMAGO__TLS__MODE": "enforcing",
        "IMAGO__TLS__METAQ_PORT": "8124",
        "IMAGO__TLS__REPLICATION": "enforcing",
        "IMAGO__TLS__CALLS": "enforcing",
    }
    read = as_brokers_read(wanted(TLS)).tls
    assert (read.mode, read.replication, read.metaq_port) == ("enforcing", "enforcing", 8124)
    assert not [
        name for name in told_of(pod_template(wanted(), 1)) if name.startswith("IMAGO__TLS__")
    ]
    assert "acl" not in tomllib.loads(toml(wanted().settings))


CHECKED = {"spec.authorization": {"type": "Simple", "tokenReview": True}}


@pytest.mark.parametrize(
    "after",
    [
        TLS,
        {"spec.tls": {"clientsCa": {}}, "spec.brokers.config": {"tls.client_auth": "required"}},
        CHECKED,
    ],
    ids=["certificates", "of clients", "token"],
)
def test_a_pod_without_the_files_begins_again_without_them(after: dict[str, Any]) -> None:
    """The file that all share changes under the pods that run, whose folders stay as they were."""
    earlier = pod_template(wanted(), 1)
    folders = {mount["mountPath"] for mount in earlier["spec"]["containers"][0]["volumeMounts"]}
    read = as_brokers_read(wanted(after), earlier)
    named = [
        *(read.tls.certificate_file, read.tls.key_file, read.tls.ca_file, read.tls.client_ca_file),
        *(read.token_review.ca_file, read.token_review.token_file),
    ]
    assert [file for file in named if file and file.rpartition("/")[0] not in folders] == []
    assert read.tls.client_auth == "none"
    # And one that has them keeps them when they are taken out of the spec again.
    later = pod_template(wanted(after), 1)
    assert as_brokers_read(wanted(), later).tls == as_brokers_read(wanted(after), later).tls


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ({}, "optional"),
        ({"spec.brokers.config": {"tls.client_auth": "required"}}, "required"),
        ({"spec.listeners": [OUT | {"tls": True}]}, "optional"),
        (
            {"spec.listeners": [OUT | {"tls": True, "authentication": {"type": "Tls"}}]},
            "required",
        ),
    ],
)
def test_brokers_ask_clients_and_not_the_operator(spec: dict[str, Any], asked: str) -> None:
    made = wanted({"spec.tls": {"clientsCa": {}}, **spec})
    read = as_brokers_read(made).tls
    assert (read.client_auth, read.asked_of_admin) == (asked, "none")
    assert read.client_ca_file == "/etc/imago/clients-ca/ca.crt"


@pytest.mark.parametrize("mine", ["", "corporate"])
def test_pods_have_the_clients_authority_without_its_key(mine: str) -> None:
    given = {"mode": "UserProvided", "secretName": mine} if mine else {}
    spec = pod_template(wanted({"spec.tls": {"clientsCa": given}}), 1)["spec"]
    [volume] = [v for v in spec["volumes"] if v["name"] == "clients-ca"]
    assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert volume["secret"]["secretName"] == (mine or "demo-clients-ca")
    [mount] = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "clients-ca"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/imago/clients-ca", True)
    without = pod_template(wanted({"spec.tls": {}}), 1)["spec"]
    assert "clients-ca" not in {volume["name"] for volume in without["volumes"]}


def test_who_signs_for_clients_is_a_restart_and_for_how_long_is_none() -> None:
    def hashes(**said: Any) -> str:
        return wanted({"spec.tls": {"clientsCa": said}}).spec_hash

    assert hashes() == hashes(validity="9000h", overlap="1h")
    assert hashes() != hashes(mode="UserProvided", secretName="mine")
    assert hashes() != wanted({"spec.tls": {}}).spec_hash


def test_each_shard_has_its_own_secret_as_a_folder() -> None:
    spec = pod_template(wanted(TLS), 1)["spec"]
    [volume] = [v for v in spec["volumes"] if v["name"] == "tls"]
    assert volume["secret"] == {"secretName": "demo-s1-tls", "defaultMode": 0o440}
    [mount] = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "tls"]
    assert mount == {"name": "tls", "mountPath": "/etc/imago/tls", "readOnly": True}
    assert spec["automountServiceAccountToken"] is False


def test_clients_get_names_that_certificates_can_have() -> None:
    environment = pod_template(wanted(TLS), 1)["spec"]["containers"][0]["env"]
    assert "IMAGO__BROKER__ADVERTISED_HOST" not in {one["name"] for one in environment}
    names = list(alternative_names(wanted(TLS), 1))
    assert f"URI:{member_uri('demo', 1)}" in names
    assert "DNS:*.demo-brokers.mq.svc" in names
    outside = wanted({**TLS, "spec.listeners": [OUT]})
    assert "DNS:mq-1-2.example.org" in alternative_names(outside, 1)


@pytest.mark.parametrize(
    "listener",
    [
        OUT,
        {**OUT, "advertisedHostTemplate": "10.0.0.7"},
        {**OUT, "advertisedHostTemplate": "{pod}.{namespace}.example.org", "tls": True},
        {**OUT, "advertisedHostTemplate": "192.168.7.1{ordinal}", "bootstrapHost": "192.168.7.1"},
        {
            "name": "out",
            "type": "LoadBalancer",
            "advertisedHostTemplate": "{pod}.example.org",
            "bootstrapHost": "mq.example.org",
        },
        None,
    ],
)
def test_what_brokers_tell_clients_is_what_certificates_name(
    listener: dict[str, Any] | None,
) -> None:
    cluster = wanted({**TLS, "spec.listeners": [listener] if listener else []})
    named = set(alternative_names(cluster, 1))
    env = pod_template(cluster, 1)["spec"]["containers"][0]["env"]
    told = {one["name"]: one.get("value") for one in env}
    host = told.get("IMAGO__BROKER__ADVERTISED_HOST") or told["IMAGO__BROKER__HOST"]
    assert host is not None
    for ordinal in range(cluster.replicas):
        pod = {"POD_NAME": f"demo-s1-{ordinal}", "POD_NAMESPACE": "mq", "POD_ORDINAL": str(ordinal)}
        said = host
        for key, value in pod.items():
            said = said.replace(f"$({key})", value)
        assert _is_named(said, named), said
    if listener and "bootstrapHost" in listener:
        assert _is_named(listener["bootstrapHost"], named)


def _is_named(host: str, named: set[str]) -> bool:
    """Whether a client that looks for a host finds it: an address never among names."""
    if re.fullmatch(r"[0-9.]+", host):
        return f"IP:{host}" in named
    return bool({f"DNS:{host}", f"DNS:*.{host.partition('.')[2]}"} & named)


def test_where_clients_ask_first_restarts_nothing() -> None:
    before = wanted({**TLS, "spec.listeners": [OUT]})
    after = wanted({**TLS, "spec.listeners": [{**OUT, "bootstrapHost": "mq.example.org"}]})
    assert template_notes(after, 0) == template_notes(before, 0)


def test_how_long_certificates_are_valid_restarts_nothing() -> None:
    before = template_notes(wanted({"spec.tls": {}}), 0)
    longer = wanted({"spec.tls": {"validity": "720h", "renewBefore": "48h"}})
    assert template_notes(longer, 0) == before
    assert template_notes(wanted({"spec.tls": {"clients": "Enforcing"}}), 0) != before


def test_super_users_restart_nothing_and_checks_do() -> None:
    none, simple = wanted(), wanted({"spec.authorization": {"type": "Simple"}})
    assert template_notes(simple, 0) != template_notes(none, 0)
    more = wanted({"spec.authorization": {"type": "Simple", "superUsers": ["root"]}})
    assert template_notes(more, 0) == template_notes(simple, 0)
    assert tomllib.loads(toml(simple.settings))["acl"] == {"enabled": True}


def test_brokers_have_a_token_of_their_own_where_they_ask_whose_others_are() -> None:
    cluster = wanted({"spec.authorization": {"type": "Simple", "tokenReview": True}})
    told = as_brokers_read(cluster).token_review
    assert (told.url, told.audience) == ("https://kubernetes.default.svc", "imago")
    assert told.ca_file == "/etc/imago/account/ca.crt"
    assert told.token_file == "/etc/imago/account/token"
    spec = pod_template(cluster, 0)["spec"]
    [volume] = [v for v in spec["volumes"] if v["name"] == "account"]
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
    ]
    assert spec["automountServiceAccountToken"] is False
    others = pod_template(wanted({"spec.authorization": {"type": "Simple"}}), 0)["spec"]
    assert "account" not in {v["name"] for v in others["volumes"]}


@pytest.mark.parametrize("tls", [True, False])
def test_a_way_in_for_tls_leads_metaq_to_its_port(tls: bool) -> None:
    cluster = wanted({"spec.tls": {}, "spec.listeners": [{**OUT, "tls": tls}]})
    found = {m["metadata"]["name"]: m for m in render(cluster, [0]) if m["kind"] == "Service"}
    metaq, rocketmq = found["demo-s0-1-out"]["spec"]["ports"]
    assert metaq["targetPort"] == ("metaq-tls" if tls else "metaq")
    assert (metaq["nodePort"], rocketmq["targetPort"]) == (31001, "rocketmq")
    assert as_brokers_read(cluster).tls.mode == ("enforcing" if tls else "permissive")


def test_ports_are_open_where_there_is_somebody_behind() -> None:
    def ports(cluster: Any, kind: str, name: str) -> str:
        [found] = [
            m for m in render(cluster, [0]) if (m["kind"], m["metadata"]["name"]) == (kind, name)
        ]
        return str(found["spec"])

    for kind, name in (("Service", "demo-bootstrap"), ("NetworkPolicy", "demo-brokers")):
        assert "8124" in ports(wanted(TLS), kind, name)
        assert "8124" not in ports(wanted(), kind, name)


def test_cert_manager_is_asked_for_each_shard() -> None:
    issuer = {"mode": "CertManager", "issuerRef": {"name": "issuer", "kind": "ClusterIssuer"}}
    cluster = wanted({"spec.tls": {"ca": issuer, "validity": "720h", "renewBefore": "48h"}})
    found = [m for m in render(cluster, [0, 1]) if m["kind"] == "Certificate"]
    assert [m["spec"]["secretName"] for m in found] == [
        "demo-s0-tls",
        "demo-s1-tls",
        "demo-zookeeper-tls",
    ]
    assert found[2]["spec"]["privateKey"]["encoding"] == "PKCS8", "what ZooKeeper reads"
    assert not found[2]["spec"].get("uris"), "its servers are no members"
    spec = found[1]["spec"]
    assert spec["uris"] == [member_uri("demo", 1)]
    assert spec["issuerRef"] == {
        "name": "issuer",
        "kind": "ClusterIssuer",
        "group": "cert-manager.io",
    }
    assert (spec["duration"], spec["renewBefore"]) == ("720h", "48h")
    assert {"server auth", "client auth"} <= set(spec["usages"])
    assert not [m for m in render(wanted(TLS), [0]) if m["kind"] == "Certificate"]


def test_pods_with_certificates_are_called_over_tls() -> None:
    def pod(spec: dict[str, Any]) -> dict[str, Any]:
        status = {"podIP": "10.1.2.3"}
        return {"metadata": {"name": "demo-s0-0"}, "spec": spec, "status": status}

    with_tls, without = pod(pod_template(wanted(TLS), 0)["spec"]), pod({})
    assert certificate_secret(with_tls) == "demo-s0-tls"
    assert addresses([with_tls]) == {"demo-s0-0": "https://10.1.2.3:8080"}
    assert addresses([without]) == {"demo-s0-0": "http://10.1.2.3:8080"}
