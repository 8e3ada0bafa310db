"""Whose word counts, and which namespaces a cluster lets in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_operator.contents import belonging
from imago_operator.contents.belonging import Claimant, cluster_of, refusal, selects, winner
from imago_operator.spec.schema.common import ClusterRef
from imago_testing.kubernetes.custom_resources import manifest

REFERENCE = ClusterRef(name="demo")
EAST = {"zone": "east", "team": "a"}


def cluster(allowed: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    found = manifest("ImagoCluster")
    found["metadata"] |= {"namespace": "mq"} | metadata
    if allowed is not None:
        found["spec"]["allowedNamespaces"] = allowed
    return found


def expression(operator: str, key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("found", "namespace", "labels", "reason"),
    [
        (None, "mq", None, "ClusterNotFound"),
        (cluster(deletionTimestamp="2026-01-01T00:00:00Z"), "mq", None, "ClusterNotFound"),
        (cluster(), "mq", None, None),
        (cluster(), "shop", EAST, "NamespaceNotAllowed"),
        (cluster({"from": "Same"}), "shop", EAST, "NamespaceNotAllowed"),
        (cluster({"from": "All"}), "shop", None, None),
        (cluster({"from": "Selector", "selector": {}}), "shop", {}, None),
        (cluster({"from": "Selector", "selector": {}}), "shop", None, "NamespaceNotAllowed"),
        (cluster({"from": "Selector", "selector": {"matchLabels": EAST}}), "shop", EAST, None),
        (cluster({"from": "Selector", "selector": {"matchLabels": EAST}}), "mq", None, None),
        (cluster({"from": "Selector", "selector": {"matchLabels": EAST}}), "shop", {"zone": "east"},
         "NamespaceNotAllowed"),
        (cluster({"from": "Elsewhere"}), "shop", EAST, "NamespaceNotAllowed"),
    ],
)  # fmt: skip
def test_who_may(
    found: dict[str, Any] | None, namespace: str, labels: dict[str, str] | None, reason: str | None
) -> None:
    said = refusal(found, REFERENCE, namespace, labels)
    assert (said.reason if said else None) == reason


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ((), "There is no ImagoCluster mq/demo."),
        (("prod", "beta"), "There is no ImagoCluster mq/demo; here are beta, prod."),
        (tuple("dcba"), "There is no ImagoCluster mq/demo; here are a, b and 2 more."),
    ],
)
def test_who_mistakes_the_name_is_told_those_there_are(
    known: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(belonging, "SHOWN_MAX", 2)
    said = refusal(None, REFERENCE, "mq", None, known)
    assert said is not None
    assert said.message == told


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        (expression("In", "zone", "east", "west"), True),
        (expression("In", "zone", "west"), False),
        (expression("In", "rack", "1"), False),
        (expression("NotIn", "zone", "west"), True),
        (expression("NotIn", "rack", "1"), True),
        (expression("NotIn", "zone", "east"), False),
        (expression("Exists", "zone"), True),
        (expression("Exists", "rack"), False),
        (expression("DoesNotExist", "rack"), True),
        (expression("DoesNotExist", "zone"), False),
        (expression("Resembles", "zone", "east"), False),
        ({"matchLabels": {"team": "a"}, **expression("Exists", "rack")}, False),
    ],
)
def test_selectors_fit_as_those_of_kubernetes(selector: dict[str, Any], fits: bool) -> None:
    assert selects(selector, EAST) is fits


def test_a_reference_without_namespace_is_to_the_own_one() -> None:
    topic = manifest("ImagoTopic")
    topic["metadata"]["namespace"] = "shop"
    assert cluster_of(topic) == ("shop", "demo")
    topic["spec"]["clusterRef"]["namespace"] = "mq"
    assert cluster_of(topic) == ("mq", "demo")


CLAIMANTS = st.builds(
    Claimant,
    namespace=st.just("mq"),
    name=st.just("t"),
    uid=st.uuids().map(str),
    created=st.integers(0, 3).map(lambda n: f"2026-01-01T00:00:0{n}Z"),
    deleting=st.booleans(),
)


@given(st.lists(CLAIMANTS, max_size=6, unique_by=lambda c: c.uid))
def test_exactly_one_counts_whoever_is_asked_first(claimants: list[Claimant]) -> None:
    found = winner(claimants)
    assert found == winner(reversed(claimants))
    living = [c for c in claimants if not c.deleting]
    assert (found is None) == (not living)
    if found is not None:
        assert all(found.age <= other.age for other in living)
        # One that comes later, and one that goes, change nothing.
        later = replace(found, uid=found.uid + "x", created="2027-01-01T00:00:00Z")
        assert winner([*claimants, later, replace(later, deleting=True)]) == found
