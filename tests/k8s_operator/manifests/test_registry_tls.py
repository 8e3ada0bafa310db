"""What pods, Services and policies say of TLS to a managed ZooKeeper."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from imago_operator.manifests.brokers import pod_template, template_notes
from imago_operator.manifests.render import render
from imago_operator.manifests.zookeeper import zookeeper_notes
from imago_operator.spec.cluster.zookeeper import RegistryTls
from imago_testing.operated.resources import as_brokers_read, wanted

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired

NONE, PERMISSIVE, ENFORCING = RegistryTls


@cache
def cluster_of(tls: RegistryTls) -> Desired:
    return wanted({"spec.zookeeper": {"managed": {"tls": tls.value}}})


class TestPods:
    """What pods are told, and nobody else is."""

    def test_a_broker_reads_it_of_its_own_pod(self) -> None:
        found = as_brokers_read(cluster_of(PERMISSIVE)).zookeeper
        assert found.connect == "demo-zookeeper.mq.svc:2281"
        assert found.tls_ca_file == "/etc/imago/zookeeper-tls/ca.crt"
        volumes = pod_template(cluster_of(PERMISSIVE), 0)["spec"]["volumes"]
        [secret] = [one["secret"] for one in volumes if one["name"] == "zookeeper-tls"]
        assert secret["secretName"] == "demo-zookeeper-tls"
        assert [item["key"] for item in secret["items"]] == ["ca.crt"]

    def test_a_pod_made_before_goes_on_by_the_plain_port(self) -> None:
        before = pod_template(cluster_of(NONE), 0)
        found = as_brokers_read(cluster_of(PERMISSIVE), before).zookeeper
        assert (found.connect, found.tls_ca_file) == ("demo-zookeeper.mq.svc:2181", "")

    def test_closing_the_plain_port_restarts_servers_alone(self) -> None:
        one, other = cluster_of(PERMISSIVE), cluster_of(ENFORCING)
        assert template_notes(one, 0) == template_notes(other, 0)
        assert zookeeper_notes(one) != zookeeper_notes(other)

    def test_without_a_word_of_it_there_is_tls(self) -> None:
        assert zookeeper_notes(wanted()) == zookeeper_notes(cluster_of(PERMISSIVE))

    def test_an_external_one_is_named_in_each_pod(self) -> None:
        """Else a container that begins again in an old pod speaks no TLS to a port with TLS."""
        plain = wanted({"spec.zookeeper": {"external": {"servers": ["zk:2181"]}}})
        secured = {"servers": ["zk:2281"], "tls": {"secretName": "zk-tls"}}
        moved = wanted({"spec.zookeeper": {"external": secured}})
        assert as_brokers_read(moved).zookeeper.connect == "zk:2281"
        told = as_brokers_read(moved, pod_template(plain, 0)).zookeeper
        assert (told.connect, told.tls_ca_file) == ("zk:2181", "")


def ports(tls: RegistryTls, kind: str, name: str) -> list[int]:
    objects = {(m["kind"], m["metadata"]["name"]): m for m in render(cluster_of(tls), [0])}
    return [one["port"] for one in objects[kind, name]["spec"]["ports"]]


def test_services_and_policies_follow_the_ports() -> None:
    said = {tls: ports(tls, "Service", "demo-zookeeper") for tls in RegistryTls}
    assert said == {NONE: [2181], PERMISSIVE: [2181, 2281], ENFORCING: [2281]}
    for tls in RegistryTls:
        [policy] = [
            m
            for m in render(cluster_of(tls), [0])
            if (m["kind"], m["metadata"]["name"]) == ("NetworkPolicy", "demo-zookeeper")
        ]
        rules = policy["spec"]["ingress"]
        found = {one["port"]: rule.get("from") for rule in rules for one in rule["ports"]}
        assert set(found) - {2888, 3888} == set(said[tls])
        if tls is not NONE:
            [only] = found[2281]
            assert only["podSelector"]["matchLabels"]["imago.dev/component"] == "broker"
