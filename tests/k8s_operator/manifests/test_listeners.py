"""Several ways in: which Services lead where, and what brokers are told to tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.config.loading import from_tree, parse_tree
from imago_operator.manifests.brokers import pod_template
from imago_operator.manifests.config import toml
from imago_operator.manifests.render import render
from imago_operator.model.listeners import are_apart, listener_ports
from imago_operator.model.state import OwnedObject
from imago_operator.plan.look import ClusterLook
from imago_operator.plan.objects import wanted as planned
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_broker.config import BrokerConfig
    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Observed

INSIDE = {"name": "in", "type": "Internal"}
NODES = {"name": "out", "type": "NodePort", "firstNodePort": 31000}
BALANCED = {"name": "lb", "type": "LoadBalancer"}
NAMED = {**BALANCED, "advertisedHostTemplate": "{pod}.{node}.example.org"}


def cluster(*listeners: dict[str, Any], **more: Any) -> Desired:
    return wanted({"spec.listeners": list(listeners), **more})


def read(desired: Desired) -> BrokerConfig:
    """Return what the broker of member 2 of shard 1 reads."""
    [container] = pod_template(desired, 1)["spec"]["containers"]
    told = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    words = {"POD_NAME": "demo-s1-2", "POD_ORDINAL": "2", "POD_NAMESPACE": "mq"}
    words |= {"NODE_NAME": "node-c", "NODE_ADDRESS": "10.0.0.3"}
    for word, value in words.items():
        told = {name: said.replace(f"$({word})", value) for name, said in told.items()}
    return from_tree(parse_tree(toml(desired.settings), told))


@pytest.mark.parametrize(
    ("listeners", "apart"),
    [
        ([], False),
        ([NODES], False),
        ([{**BALANCED, "advertisedHostTemplate": "{pod}.example.org"}], False),
        ([BALANCED], True),
        ([INSIDE], True),
        ([INSIDE, NODES], True),
        ([NODES, BALANCED], True),
        ([{**NODES, "metaq": {"zookeeperSourceRanges": ["10.0.0.0/8"]}}], True),
        ([{**NODES, "perBroker": {"firstPort": 31000}}], True),
    ],
)
def test_one_listener_as_before_is_told_to_everybody(
    listeners: list[dict[str, Any]], apart: bool
) -> None:
    assert are_apart(cluster(*listeners).spec) == apart


def test_brokers_listen_for_each_and_tell_each_its_addresses() -> None:
    """And their own to those inside, whom no listener outside concerns."""
    config = read(
        cluster(
            INSIDE,
            {**NODES, "firstGrpcNodePort": 31500},
            NAMED,
            BALANCED | {"name": "late", "perBroker": {"firstPort": 41000, "firstGrpcPort": 42000}},
        )
    )
    assert (config.rocketmq.advertised_port, config.metaq.advertised_port) == (0, 0)
    out, named, late = config.listeners
    assert (out.name, out.host) == ("out", "10.0.0.3")
    assert out.told == {"metaq": 31022, "rocketmq": 31032, "grpc": 31512}
    assert (named.host, named.told) == (
        "demo-s1-2.node-c.example.org",
        {"metaq": 8123, "rocketmq": 10911, "grpc": 8081},
    )
    assert (late.host, late.told) == ("", {"metaq": 41022, "rocketmq": 41032, "grpc": 42012})
    assert config.broker.listener_hosts_file == "/etc/imago/listeners/demo-s1-2"
    ports = [port for each in config.listeners for port in each.ports.values()]
    assert len(set(ports)) == len(ports) == 12


def test_a_port_of_a_listener_is_the_one_that_its_services_lead_to() -> None:
    desired = cluster(INSIDE, NODES, BALANCED)
    [container] = pod_template(desired, 0)["spec"]["containers"]
    opened = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert listener_ports(desired.spec).items() <= opened.items()
    assert max(map(len, opened)) <= 15
    for one in render(desired, [0]):
        if one["kind"] == "Service" and one["metadata"]["name"].endswith(("-out", "-lb")):
            listener = one["metadata"]["name"].rpartition("-")[2]
            for port in one["spec"]["ports"]:
                assert port["targetPort"] == f"{port['name'][0]}-{listener}"


def test_tls_of_a_listener_concerns_its_own_ports() -> None:
    secure = {**NODES, "tls": True, "advertisedHostTemplate": "{pod}.example.org"}
    apart = read(cluster(INSIDE, secure, **{"spec.tls": {}}))
    assert (apart.tls.mode, apart.listeners[0].tls) == ("permissive", True)
    inside = read(cluster({**INSIDE, "tls": True}, secure, **{"spec.tls": {}}))
    assert inside.tls.mode == "enforcing"
    shown = {**secure, "authentication": {"type": "Tls"}}
    asked = read(cluster(INSIDE, shown, **{"spec.tls": {"clientsCa": {}}}))
    assert (asked.tls.mode, asked.tls.client_auth) == ("enforcing", "required")


def test_zookeeper_is_open_to_the_networks_of_metaqs_clients_alone() -> None:
    closed = render(cluster(INSIDE, NODES, BALANCED), [0])
    assert not [o for o in closed if o["metadata"]["name"] == "demo-zookeeper-out"]
    metaq = {"metaq": {"zookeeperSourceRanges": ["192.0.2.0/24"]}}
    made = {
        (o["kind"], o["metadata"]["name"]): o
        for o in render(cluster(INSIDE, NODES, BALANCED | metaq), [0])
    }
    assert ("Service", "demo-zookeeper-out") not in made
    spec = made["Service", "demo-zookeeper-lb"]["spec"]
    assert spec["loadBalancerSourceRanges"] == ["192.0.2.0/24"]
    assert spec["externalTrafficPolicy"] == "Local"
    rules = made["NetworkPolicy", "demo-zookeeper"]["spec"]["ingress"]
    [client] = [rule for rule in rules if rule["ports"][0]["port"] == 2181]
    assert client["from"] == [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "192.0.2.0/24"}}]
    assert read(cluster(INSIDE, NODES, BALANCED | metaq)).metaq.listener == "lb"


def seen(desired: Desired, *, ports: frozenset[str] | None, led: bool = False) -> Observed:
    world = ClusterWorld(desired)
    world.settle()
    found = world.observe()
    pods = tuple(replace(pod, ports=ports if pod.ordinal else None) for pod in found.pods)
    if ports == frozenset():
        pods = tuple(replace(pod, ports=ports) for pod in found.pods)
    made = OwnedObject(
        kind="Service",
        name="demo-s0-1-lb",
        uid="s",
        live={"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}},
    )
    others = tuple(child for child in found.children if child.name != made.name)
    return replace(found, pods=pods, children=(*others, made) if led else found.children)


def targets(desired: Desired, observed: Observed) -> dict[str, str]:
    """Return by Service where it leads RocketMQ's clients, or those who ask first."""
    return {
        one["metadata"]["name"]: one["spec"]["ports"][0]["targetPort"]
        for one in planned(ClusterLook(desired, observed, START))
        if one["kind"] == "Service" and one["metadata"]["name"].endswith("-out")
    }


def test_services_lead_to_a_listeners_port_once_their_pod_has_it() -> None:
    desired = cluster(INSIDE, NODES)
    before = targets(desired, seen(desired, ports=frozenset()))
    assert (before["demo-bootstrap-out"], before["demo-s0-0-out"]) == ("namesrv", "metaq")
    between = targets(desired, seen(desired, ports=frozenset({"metaq"})))
    assert (between["demo-bootstrap-out"], between["demo-s0-0-out"]) == ("n-out", "m-out")
    assert between["demo-s0-1-out"] == "metaq"
    after = targets(desired, seen(desired, ports=frozenset(listener_ports(desired.spec))))
    assert set(after.values()) == {"n-out", "m-out"}


def test_brokers_read_what_their_load_balancers_have_got() -> None:
    desired = cluster(INSIDE, BALANCED)

    def told(*, led: bool) -> dict[str, str]:
        [found] = [
            one["data"]
            for one in planned(ClusterLook(desired, seen(desired, ports=None, led=led), START))
            if one["metadata"]["name"] == "demo-listeners"
        ]
        return dict(found)

    assert told(led=False) == {}
    assert told(led=True) == {"demo-s0-1": "lb=203.0.113.7\n"}


def test_what_services_have_restarts_no_pod() -> None:
    plain = cluster(INSIDE, BALANCED)
    noted = {"labels": {"a": "b"}, "annotations": {"c": "{pod}"}}
    more = cluster(
        INSIDE,
        BALANCED | {"loadBalancerSourceRanges": ["10.0.0.0/8"], "perBroker": noted},
    )
    assert more.spec_hash == plain.spec_hash
    assert cluster(INSIDE, NODES).spec_hash != plain.spec_hash
