"""Who may reach which port of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from imago_operator.manifests.render import render
from imago_testing.operated.resources import wanted

PEERS = "spec.zookeeper.managed.allowedPeers"
BROKERS = {"imago.dev/cluster": "demo", "imago.dev/component": "broker"}
APP = {"namespaceSelector": {"matchLabels": {"app": "metaq"}}}


def zookeeper_rules(changes: dict[str, Any]) -> dict[int, Any]:
    """Return who may reach each port of ZooKeeper; None: everybody."""
    objects = render(wanted(changes), [0])
    [policy] = [
        m
        for m in objects
        if (m["kind"], m["metadata"]["name"]) == ("NetworkPolicy", "demo-zookeeper")
    ]
    rules = policy["spec"]["ingress"]
    return {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}


def test_everybody_finds_brokers_in_zookeeper_unless_told_otherwise() -> None:
    assert zookeeper_rules({})[2181] is None


@pytest.mark.parametrize("given", [[], [APP]])
def test_zookeeper_is_reached_by_brokers_and_by_those_named(given: list[Any]) -> None:
    brokers, *named = zookeeper_rules({PEERS: given})[2181]
    assert brokers["podSelector"]["matchLabels"].items() >= BROKERS.items()
    assert named == given


def test_peers_of_zookeeper_are_its_servers_alone() -> None:
    rules = zookeeper_rules({PEERS: [APP]})
    assert rules[2888] == rules[3888] == zookeeper_rules({})[2888]
    assert len(rules[2888]) == 1


def test_who_reaches_zookeeper_restarts_nothing() -> None:
    def sets(changes: dict[str, Any]) -> list[Any]:
        return [m for m in render(wanted(changes), [0]) if m["kind"] == "StatefulSet"]

    assert sets({PEERS: []}) == sets({})
