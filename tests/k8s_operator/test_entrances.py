"""Where clients outside of the Kubernetes cluster find it, as the status says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from imago_operator.manifests.policies import broker_policy
from imago_operator.manifests.services import external_services
from imago_operator.model.state import OwnedObject
from imago_operator.plan import plan
from imago_operator.reporting.status import status_of
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    import pytest

    from imago_operator.model.state import Observed
    from imago_operator.spec.cluster.cluster_status import ClusterStatus, ListenerStatus

NODE_PORT = {"name": "out", "type": "NodePort", "firstNodePort": 30900}
BALANCER = {
    "name": "out",
    "type": "LoadBalancer",
    "advertisedHostTemplate": "{pod}.example.org",
    "bootstrapHost": "mq.example.org",
}


def said(spec: dict[str, Any], *, balancers: tuple[str, ...] = ()) -> ClusterStatus:
    desired = wanted(spec)
    world = ClusterWorld(desired)
    world.settle()
    seen = _placed(world.observe(), balancers)
    return status_of(desired, seen, plan(desired, seen, START), START)


def _placed(seen: Observed, balancers: tuple[str, ...]) -> Observed:
    pods = tuple(replace(pod, host=f"10.0.0.{pod.ordinal}") for pod in seen.pods)
    led = {name: f"{name}.lb.example.com" for name in balancers}
    others = tuple(child for child in seen.children if child.name not in led)
    made = tuple(
        OwnedObject(
            kind="Service",
            name=name,
            uid=name,
            live={"status": {"loadBalancer": {"ingress": [{"hostname": host}]}}},
        )
        for name, host in led.items()
    )
    return replace(seen, pods=pods, children=(*others, *made))


def listener(spec: dict[str, Any], **more: Any) -> ListenerStatus:
    (found,) = said({"spec.listeners": [spec]}, **more).listeners
    return found


def test_nodes_are_named_with_their_ports() -> None:
    found = listener(NODE_PORT)
    assert (found.bootstrap, found.zookeeper) == ("10.0.0.0:30909", "10.0.0.0:30908")
    last = found.brokers[-1]
    assert (last.pod, last.rocketmq, last.metaq) == (
        "demo-s1-2",
        "10.0.0.2:30932",
        "10.0.0.2:30922",
    )
    named = listener({**NODE_PORT, "advertisedHostTemplate": "mq-{shard}-{ordinal}.example.org"})
    assert named.bootstrap == "mq-0-0.example.org:30909"
    assert listener({**NODE_PORT, "bootstrapHost": "any"}).bootstrap == "any:30909"


def test_sdks_come_in_by_nodes_where_the_listener_says_at_which_ports() -> None:
    found = listener({**NODE_PORT, "firstGrpcNodePort": 31500})
    assert (found.grpc, found.brokers[-1].grpc) == ("10.0.0.0:31509", "10.0.0.2:31512")
    found = listener(NODE_PORT)
    assert (found.grpc, found.brokers[-1].grpc) == (None, None)


def test_sdks_that_no_broker_serves_are_told_nothing() -> None:
    spec = {"spec.listeners": [BALANCER]}
    served = said(spec)
    assert served.grpc == "demo-bootstrap.mq.svc:8081"
    assert served.listeners[0].brokers[0].grpc == "demo-s0-0.example.org:8081"
    off = said(spec | {"spec.brokers.config": {"rocketmq.grpc_enabled": "false"}})
    assert (off.grpc, off.listeners[0].grpc, off.listeners[0].brokers[0].grpc) == (None,) * 3
    services = external_services(
        wanted(spec | {"spec.brokers.config": {"rocketmq.grpc_enabled": "false"}}), [0]
    )
    opened = {port["name"] for one in services for port in one["spec"]["ports"]}
    assert "grpc" not in opened
    assert "rocketmq" in opened


def test_a_load_balancers_services_lead_to_the_port_of_sdks() -> None:
    made = {
        one["metadata"]["name"]: one
        for one in external_services(wanted({"spec.listeners": [BALANCER]}), [0])
    }
    for name in ("demo-bootstrap-out", "demo-s0-0-out"):
        ports = {port["name"]: port["port"] for port in made[name]["spec"]["ports"]}
        assert ports["grpc"] == 8081, name


def test_load_balancers_are_shown_as_soon_as_they_have_an_address() -> None:
    found = listener({k: v for k, v in BALANCER.items() if k != "bootstrapHost"})
    assert (found.bootstrap, found.zookeeper, found.brokers[0].leads_to) == (None, None, None)
    services = ("demo-bootstrap-out", "demo-zookeeper-out", "demo-s0-0-out")
    found = listener(BALANCER, balancers=services)
    assert (found.bootstrap, found.grpc) == ("mq.example.org:9876", "mq.example.org:8081")
    assert found.zookeeper == "demo-zookeeper-out.lb.example.com:2181"
    first = found.brokers[0]
    assert (first.rocketmq, first.metaq) == (
        "demo-s0-0.example.org:10911",
        "demo-s0-0.example.org:8123",
    )
    assert first.leads_to == "demo-s0-0-out.lb.example.com"


def test_large_clusters_list_the_first_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imago_operator.reporting.entrances.BROKERS_MAX", 2)
    assert [one.pod for one in listener(NODE_PORT).brokers] == ["demo-s0-0", "demo-s0-1"]


def test_a_listener_that_no_certificate_names_is_told() -> None:
    """Admission lets none in; one that was there before goes on."""

    def invalid(spec: dict[str, Any]) -> list[str]:
        conditions = said({"spec.tls": {}, "spec.listeners": [spec]}).conditions
        return [c.reason for c in conditions if c.type == "CertificatesValid"]

    assert invalid(NODE_PORT) == ["AddressNotNamed"]
    assert invalid({**NODE_PORT, "advertisedHostTemplate": "{pod}.example.org"}) == []


def test_several_ways_are_shown_each_with_its_own_addresses() -> None:
    inside = {"name": "in", "type": "Internal"}
    late = {"name": "lb", "type": "LoadBalancer", "perBroker": {"firstPort": 41000}}
    nodes = {**NODE_PORT, "metaq": {"zookeeperSourceRanges": ["10.0.0.0/8"]}}
    spec = {"spec.listeners": [inside, late, nodes]}
    first, balanced, out = said(spec).listeners
    assert (first.bootstrap, first.grpc) == (
        "demo-bootstrap.mq.svc:9876",
        "demo-bootstrap.mq.svc:8081",
    )
    assert (first.brokers, first.zookeeper) == ((), None)
    assert (balanced.bootstrap, balanced.brokers, balanced.zookeeper) == (None, (), None)
    assert out.bootstrap_servers == "10.0.0.0:30909;10.0.0.1:30909;10.0.0.2:30909"
    assert out.zookeeper == "10.0.0.0:30908,10.0.0.1:30908,10.0.0.2:30908"
    found = said(spec, balancers=("demo-bootstrap-lb", "demo-s0-1-lb")).listeners[1]
    assert found.bootstrap_servers == "demo-bootstrap-lb.lb.example.com:9876"
    [told] = found.brokers
    assert (told.pod, told.rocketmq, told.metaq) == (
        "demo-s0-1",
        "demo-s0-1-lb.lb.example.com:41011",
        "demo-s0-1-lb.lb.example.com:41001",
    )


def test_a_name_that_has_the_node_is_told_once_there_is_one() -> None:
    found = listener({**NODE_PORT, "advertisedHostTemplate": "{node}.example.org"})
    assert all(one.rocketmq.split(":")[0].endswith(".example.org") for one in found.brokers)


def test_three_nodes_are_enough_to_ask_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imago_operator.reporting.entrances.BOOTSTRAP_MAX", 2)
    found = listener(NODE_PORT)
    assert found.bootstrap_servers == "10.0.0.0:30909;10.0.0.1:30909"


def test_administration_is_reached_where_a_listener_opens_it() -> None:
    tls: dict[str, Any] = {"spec.tls": {}}
    named = {"advertisedHostTemplate": "{pod}.example.org", "admin": True}
    spec = tls | {"spec.listeners": [BALANCER | named, NODE_PORT | named | {"name": "nodes"}]}
    balanced, nodes = said(spec).listeners
    assert balanced.admin == "mq.example.org:8080"
    assert nodes.admin == "demo-s0-0.example.org:30919"
    desired = wanted(spec)
    opened = {
        one["metadata"]["name"]: port.get("nodePort")
        for one in external_services(desired, [0])
        for port in one["spec"]["ports"]
        if port["name"] == "admin"
    }
    assert opened == {"demo-bootstrap-out": None, "demo-bootstrap-nodes": 30919}

    def rules(spec: dict[str, Any]) -> list[Any]:
        found = broker_policy(wanted(spec))["spec"]["ingress"]
        return [rule.get("from") for rule in found if rule["ports"][0]["port"] == 8080]

    assert rules(spec) == [None]
    assert rules(tls)[0]
