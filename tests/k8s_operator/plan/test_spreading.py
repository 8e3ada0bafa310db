"""Servers of ZooKeeper that share a node move apart, one at a time, when another node is free."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from imago_operator.model.actions import ClassClaim, DeletePod, SetConfig
from imago_operator.model.state import KubeNode, Pod, written
from imago_operator.plan import plan
from imago_operator.plan.rows import PlanRow
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.model.state import Observed

ZONES = {f"n{i}": KubeNode(name=f"n{i}", rack=f"zone-{i}") for i in range(3)}


@pytest.fixture(name="seen")
def _seen() -> Observed:
    world = ClusterWorld(wanted())
    world.settle()
    return replace(world.observe(), nodes=ZONES)


def placed(seen: Observed, nodes: Iterable[str]) -> Observed:
    """Return the same with ZooKeeper's servers on these nodes."""
    where = dict(zip((pod.name for pod in seen.pods_of(None)), nodes, strict=True))
    pods = tuple(replace(p, node=where[p.name]) if p.shard is None else p for p in seen.pods)
    return replace(seen, pods=pods)


def deleted(seen: Observed, at: float = 0.0) -> list[str]:
    found = plan(wanted(), seen, START + timedelta(seconds=at))
    return [action.name for action in found.actions if isinstance(action, DeletePod)]


def test_one_of_a_majority_goes_to_the_free_node(seen: Observed) -> None:
    crowded = placed(seen, ("n0", "n1", "n1"))
    assert deleted(crowded) == [seen.pods_of(None)[2].name]
    record = plan(wanted(), crowded, START).record["zookeeper_move"]
    assert (record.node, record.at) == ("n1", written(START))


def test_a_server_that_moves_is_told_as_that(seen: Observed) -> None:
    found = plan(wanted(), placed(seen, ("n0", "n1", "n1")), START)
    assert found.row is PlanRow.SERVERS
    [said] = [one for one in found.findings if one.type == "Reconciling"]
    assert said.message.startswith(f"{seen.pods_of(None)[2].name} goes to a node of its own")


@pytest.mark.parametrize("nodes", [("n0", "n1", "n2"), ("n2", "n0", "n1")])
def test_servers_that_are_apart_stay(seen: Observed, nodes: tuple[str, ...]) -> None:
    assert deleted(placed(seen, nodes)) == []


@pytest.mark.parametrize(
    "closed", [{"open": False}, {"name": "elsewhere", "open": False}], ids=["cordoned", "gone"]
)
def test_nothing_moves_where_no_node_is_free(seen: Observed, closed: dict[str, object]) -> None:
    crowded = placed(seen, ("n0", "n1", "n1"))
    nodes = {**ZONES, "n2": replace(ZONES["n2"], **closed)}  # type: ignore[arg-type]  # its fields
    crowded = replace(crowded, nodes=nodes)
    assert deleted(crowded) == []
    found = plan(wanted(), crowded, START)
    assert "ZooKeeperOnOneNode" in {finding.reason for finding in found.findings}


def test_nothing_moves_where_nodes_may_not_be_read(seen: Observed) -> None:
    assert deleted(replace(placed(seen, ("n0", "n1", "n1")), nodes=None)) == []


def test_nothing_moves_while_a_server_is_not_ready(seen: Observed) -> None:
    crowded = placed(seen, ("n0", "n1", "n1"))
    first = crowded.pods_of(None)[0]
    ill = tuple(replace(p, ready=False) if p.uid == first.uid else p for p in crowded.pods)
    assert deleted(replace(crowded, pods=ill)) == []


def test_a_server_that_came_back_to_its_node_is_left_there_for_an_hour(seen: Observed) -> None:
    crowded = placed(seen, ("n0", "n1", "n1"))
    record = plan(wanted(), crowded, START).record
    again = replace(crowded, status=replace(crowded.status, **record))
    assert deleted(again, at=3599) == []
    assert deleted(again, at=3600) == [seen.pods_of(None)[2].name]


def test_a_second_drain_within_the_hour_is_cured_too(seen: Observed) -> None:
    """A node was drained, its server moved back to where there was room; then another node is."""
    crowded = placed(seen, ("n0", "n1", "n1"))
    record = plan(wanted(), crowded, START).record
    apart = placed(seen, ("n0", "n1", "n2"))
    apart = replace(apart, status=replace(apart.status, **record))
    again = plan(wanted(), apart, START + timedelta(seconds=60)).record
    assert again == {"zookeeper_move": None}
    crowded = placed(replace(apart, status=replace(apart.status, **again)), ("n0", "n0", "n2"))
    assert deleted(crowded, at=120) == [seen.pods_of(None)[1].name]


@pytest.mark.parametrize("change", [{"node": None, "ready": False}, {"ready": False}])
def test_a_server_on_its_way_is_not_taken_for_one_that_got_there(
    seen: Observed, change: dict[str, object]
) -> None:
    crowded = placed(seen, ("n0", "n1", "n1"))
    record = plan(wanted(), crowded, START).record
    going = placed(seen, ("n0", "n1", "n2"))
    last = going.pods_of(None)[2]
    pods = tuple(replace(p, **change) if p.uid == last.uid else p for p in going.pods)  # type: ignore[arg-type]
    going = replace(going, pods=pods, status=replace(going.status, **record))
    assert "zookeeper_move" not in plan(wanted(), going, START + timedelta(seconds=60)).record


def test_brokers_are_told_the_zone_of_their_node(seen: Observed) -> None:
    def known(pod: Pod) -> Pod:
        assert pod.broker is not None
        config = {**pod.broker.config, "broker.zone": ""}
        return replace(pod, node="n1", broker=replace(pod.broker, config=config))

    pods = tuple(known(p) if p.broker else p for p in seen.pods)
    told = plan(wanted(), replace(seen, pods=pods), START).actions
    brokers = sum(pod.broker is not None for pod in pods)
    zones = [a.values["broker.zone"] for a in told if isinstance(a, SetConfig)]
    assert zones == ["zone-1"] * brokers
    unknown = plan(wanted(), replace(seen, pods=pods, nodes=None), START).actions
    assert not [action for action in unknown if isinstance(action, SetConfig)]


def test_claims_get_another_attributes_class_once(seen: Observed) -> None:
    desired = wanted({"spec.brokers.storage.volumeAttributesClassName": "gold"})
    asked = [a for a in plan(desired, seen, START).actions if isinstance(a, ClassClaim)]
    assert [(a.name, a.attributes_class) for a in asked] == [(c.name, "gold") for c in seen.claims]
    has = tuple(replace(claim, attributes_class="gold") for claim in seen.claims)
    was_dropped = tuple(replace(claim, attributes_asked="gold") for claim in seen.claims)
    for claims in (has, was_dropped):
        again = plan(desired, replace(seen, claims=claims), START).actions
        assert not [action for action in again if isinstance(action, ClassClaim)]


def test_a_pod_that_no_node_takes_is_named_in_the_schedulers_words(seen: Observed) -> None:
    why = "0/3 nodes are available: 3 Insufficient cpu."
    last = seen.pods_of(0)[-1]
    homeless = replace(
        last, ready=False, broker=None, node=None, waiting="Unschedulable", unscheduled=why
    )
    pods = tuple(homeless if pod.uid == last.uid else pod for pod in seen.pods)
    said = {f.type: f for f in plan(wanted(), replace(seen, pods=pods), START).findings}
    assert said["Degraded"].message == f"No node takes {last.name}: {why}"
