"""Two installations over one namespace: one works, the other says so and does nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.errors import RetryError
from imago_operator.kube.objects import Kubernetes
from imago_operator.model import names
from imago_operator.observing.observed import Observer
from imago_operator.observing.volumes import Volumes
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.cluster import ClusterReconciler
from imago_operator.reconcilers.topic import TopicReconciler
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_api_server import Call, Refused
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.fake_contents_port import FakeContentsPort
from imago_testing.operated.resources import resource

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST, SECOND = "imago-system/imago-operator", "tools/imago-operator"


def lease(named: str, renewed: int = 0, holder: str = "pod-1") -> dict[str, Any]:
    namespace, _, name = named.partition("/")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"holderIdentity": holder, "renewTime": str(renewed), "leaseDurationSeconds": 15},
    }


@dataclass
class Told:
    """A recorder of events."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    async def record(self, _: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        self.events.append((type_, reason, message))


class Two:
    """One cluster that the first installation runs, and a second one that comes later."""

    def __init__(self) -> None:
        self.cluster = OperatedCluster(resource())
        self.kubernetes = self.cluster.kubernetes
        self.told = Told()
        self.kubernetes.put(lease(FIRST))
        self.kubernetes.put(lease(SECOND))
        self.first = self.cluster.reconciler
        self.second = self._second()

    def _second(self) -> ClusterReconciler:
        kube = Kubernetes(self.kubernetes, self.told)  # type: ignore[arg-type]  # what it uses
        context = replace(self.first._context, kube=kube, installation=SECOND)
        return ClusterReconciler(context, Observer(context, Volumes(kube, context.clock)), str)

    async def looks(self, who: ClusterReconciler) -> tuple[float | None, list[Call]]:
        """Let one of them look; return when it looks again, and what it has changed."""
        before = len(self.kubernetes.writes)
        again = await who.reconcile(self.cluster.key)
        return again, self.kubernetes.writes[before:]

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.cluster.turn()

    @property
    def owner(self) -> str | None:
        found = self.kubernetes.find(*self.cluster.key)
        assert found is not None
        said: str | None = found.get("status", {}).get("operatedBy")
        return said

    def annotate(self, installation: str) -> None:
        found = self.kubernetes.find(*self.cluster.key)
        assert found is not None
        found["metadata"].setdefault("annotations", {})[names.OPERATED_BY] = installation


@pytest.fixture(name="two")
def _two() -> Two:
    return Two()


async def test_a_cluster_is_taken_up_before_anything_is_done(two: Two) -> None:
    _, changes = await two.looks(two.first)
    assert two.owner == FIRST
    assert (changes[0].plural, changes[0].sub) == ("imagoclusters", "status")
    assert len(changes) > 1


async def test_the_second_changes_nothing_and_says_why_once(two: Two) -> None:
    await two.looks(two.first)
    for number in range(5):
        two.kubernetes.put(lease(FIRST, renewed=number))
        again, changes = await two.looks(two.second)
        assert changes == []
        assert again is not None
        assert again > 15, "longer than a Lease lasts"
        two.pass_time(int(again))
    (event,) = two.told.events
    assert event[:2] == ("Warning", "OperatedByAnother")
    assert f"{FIRST} looks after this cluster" in event[2]
    assert f"kubectl annotate imc demo --overwrite imago.dev/operated-by={SECOND}" in event[2]
    assert two.owner == FIRST


@pytest.mark.parametrize("how", ["not renewed", "given back", "gone"])
async def test_it_takes_over_from_one_that_is_no_more(two: Two, how: str) -> None:
    await two.looks(two.first)
    if how == "given back":
        two.kubernetes.put(lease(FIRST, holder=""))
    elif how == "gone":
        two.kubernetes.drop("Lease", *FIRST.split("/"))
    else:
        again, changes = await two.looks(two.second)
        assert changes == []
        two.pass_time(int(again or 0))
    await two.looks(two.second)
    assert two.owner == SECOND
    again, changes = await two.looks(two.first)
    assert changes == [], "and the first leaves it alone, should it come back"


async def test_of_two_that_take_it_up_at_once_one_wins(two: Two) -> None:
    pending: list[Call] = []

    def between(call: Call) -> None:
        """The first is faster, between the second's look and its write."""
        if call.changes and not pending:
            pending.append(call)
            found = two.kubernetes.find(*two.cluster.key)
            assert found is not None
            said = {**found, "status": {"operatedBy": FIRST}}
            two.kubernetes.put(said)

    two.kubernetes.before = between
    with pytest.raises(RetryError):
        await two.looks(two.second)
    assert two.owner == FIRST
    _, changes = await two.looks(two.second)
    assert changes == []


async def test_where_the_lease_may_not_be_read_a_person_decides(two: Two) -> None:
    await two.looks(two.first)

    def refuse(call: Call) -> None:
        if call.plural == "leases":
            raise Refused(403, "Forbidden", "leases is forbidden")

    two.kubernetes.before = refuse
    for _ in range(3):
        _, changes = await two.looks(two.second)
        assert changes == []
        two.pass_time(60)
    assert "no right to get its Lease" in two.told.events[0][2]
    two.annotate(SECOND)
    await two.looks(two.second)
    assert two.owner == SECOND
    _, changes = await two.looks(two.first)
    assert changes == []


@pytest.mark.parametrize("owner", [FIRST, SECOND, None])
async def test_what_names_the_cluster_goes_with_it(owner: str | None) -> None:
    stage = Stage(FakeContentsPort())
    stage.kube.put({**manifest("ImagoCluster"), "status": {"operatedBy": owner}})
    stage.kube.put(lease(SECOND))
    stage.kube.put(manifest("ImagoTopic"))
    await TopicReconciler(stage.context()).reconcile(ObjectKey("ImagoTopic", "mq", "demo"))
    ours = owner != SECOND
    assert bool(stage.kube.status("ImagoTopic", "demo")) == ours
    assert bool(stage.contents.calls) == ours  # type: ignore[attr-defined]  # it is a fake
