"""Claims that grow by themselves: when, by how much, how often, how far, and what is said."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.brokers.answers import probe_of
from imago_operator.model import names
from imago_operator.model.actions import GrowClaim
from imago_operator.observing.volumes import _claim
from imago_operator.plan import plan
from imago_operator.promises import broken
from imago_testing.operated.looks import answering, of, reasons, running
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START

if TYPE_CHECKING:
    from imago_operator.model.state import Claim, Observed
    from imago_operator.plan import ReconcilePlan

GIB = 1 << 30
FULL = "demo-s0-1"
"""Whose disk is nearly full."""


def auto(**said: Any) -> dict[str, Any]:
    return {"spec.brokers.storage.autoGrow": {"max": "30Gi", **said}}


@pytest.fixture(name="seen", scope="module")
def _seen() -> Observed:
    return answering(running(), FULL, used=0.86)


def claims(seen: Observed, **changes: dict[str, Any]) -> Observed:
    """Return the same look with claims changed, by the pods that have them."""

    def changed(claim: Claim) -> Claim:
        pod = claim.name.removeprefix("data-").replace("-", "_")
        return replace(claim, **changes.get(pod, {}))

    return replace(seen, claims=tuple(map(changed, seen.claims)))


def grown(seen: Observed, said: dict[str, Any]) -> tuple[dict[str, str], ReconcilePlan]:
    found = plan(wanted(said), seen, START)
    return {one.name.removeprefix("data-"): one.size for one in of(found, GrowClaim)}, found


def test_a_claim_grows_by_a_step_when_its_disk_is_nearly_full(seen: Observed) -> None:
    sizes, found = grown(seen, auto())
    assert sizes == {FULL: "13Gi"}
    assert "Expanding" in reasons(found)
    (action,) = of(found, GrowClaim)
    assert action.at == "2026-01-02T03:04:05Z"


def test_nothing_grows_unless_somebody_wants_that(seen: Observed) -> None:
    assert grown(seen, {})[0] == {}
    assert grown(seen, auto(above=90))[0] == {}
    assert grown(answering(seen, FULL, used=None), auto())[0] == {}


def test_the_rest_of_its_shard_gets_as_much_at_once(seen: Observed) -> None:
    look = claims(seen, demo_s0_1={"requested": 13 * GIB, "capacity": 13 * GIB, "grown": START})
    sizes, _ = grown(look, auto())
    assert sizes == {"demo-s0-0": "13Gi", "demo-s0-2": "13Gi"}


def test_one_that_grows_is_waited_for(seen: Observed) -> None:
    every = {f"demo_s0_{n}": {"requested": 13 * GIB} for n in range(3)}
    sizes, found = grown(claims(seen, **every), auto(coolDown="1m"))
    assert sizes == {}
    assert "Expanding" in reasons(found)


@pytest.mark.parametrize(("hours", "grows"), [(5.9, False), (6.1, True)])
def test_it_does_not_grow_too_often(seen: Observed, hours: float, grows: bool) -> None:
    at = START - timedelta(hours=hours)
    sizes, found = grown(claims(seen, demo_s0_1={"grown": at}), auto())
    assert (FULL in sizes) is grows
    assert ("CoolingDown" in reasons(found)) is not grows


def test_it_grows_no_further_than_it_may(seen: Observed) -> None:
    assert grown(seen, auto(max="11Gi"))[0] == {FULL: "11Gi"}
    sizes, found = grown(seen, auto(max="10Gi"))
    assert sizes == {}
    assert "MaxReached" in reasons(found)


def test_a_spec_that_asks_for_more_goes_first(seen: Observed) -> None:
    said = {"spec.brokers.storage": {"size": "20Gi", "autoGrow": {"max": "30Gi"}}}
    sizes, _ = grown(seen, said)
    assert set(sizes.values()) == {"20Gi"}


def test_a_class_that_cannot_grow_is_said(seen: Observed) -> None:
    sizes, found = grown(replace(seen, expandable={"": False}), auto())
    assert sizes == {}
    assert "ExpansionUnsupported" in reasons(found)


@pytest.mark.parametrize(
    ("size", "at", "kept"),
    [("13Gi", "now", True), ("31Gi", "now", False), ("13Gi", "", False), ("10Gi", "now", False)],
)
def test_nobody_asks_for_more_than_is_allowed(
    seen: Observed, size: str, at: str, kept: bool
) -> None:
    claim = seen.claims[0]
    action = GrowClaim(claim.name, claim.uid, size, at)
    assert bool(broken(wanted(auto()), seen, [action], START)) is not kept


def test_what_is_read_of_broker_and_claim() -> None:
    status = {"uuid": "u", "shard": "shard-0", "disk": {"usedShare": 0.5}}
    assert probe_of(status, None, None, None).used == 0.5
    metadata = {"name": "data-demo-s0-0", "uid": "c"}
    item: dict[str, Any] = {
        "metadata": metadata | {"annotations": {names.GROWN: "2026-01-02T03:04:05Z"}},
        "spec": {"resources": {"requests": {"storage": "10Gi"}}},
    }
    assert _claim(item, 0, 0, None, wanted()).grown == START
    item["metadata"]["annotations"][names.GROWN] = "yesterday"
    assert _claim(item, 0, 0, None, wanted()).grown is None
