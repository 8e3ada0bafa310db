"""A trial cluster gets three members a shard, and one again, while clients work: nobody notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import condition, defects
from imago_e2e.ordering import order
from imago_e2e.scaling import change_members, scaled_cluster

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

GAP_SECONDS_MAX = 2.0
COUNTED = ("broker.replicas", "replication.min_in_sync", "acknowledgement.level")


def test_from_one_member_to_three_and_back(
    kube: Kube,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    assert operator.installed()
    brokers = scaled_cluster(kube)
    first = brokers.uids()
    with load(brokers, drivers, topic) as running:
        running.go_on(200)
        account.append(f"unchanged, gaps: {running.gaps()}")
        running.calm()
        account.append(f"1 -> 3 in {change_members(brokers, 3):.0f} s, gaps: {running.gaps()}")
        assert _counted(brokers) == {(3, 2, "replicated")}
        running.go_on()
        for shard in (0, 1):
            _lead(brokers, f"{brokers.name}-s{shard}-2", shard)
        running.go_on()
        before = running.gaps()
        running.calm()
        account.append(f"3 -> 1 in {change_members(brokers, 1):.0f} s, gaps: {running.gaps()}")
        running.go_on()
        assert _counted(brokers) == {(1, 1, "leader")}
        gaps = [*before.values(), *running.gaps().values()]
        account.append(running.finish())
        running.unharmed()
    assert max(gaps) <= GAP_SECONDS_MAX
    assert brokers.uids() == first, "nobody was restarted"
    assert defects(kube, brokers.namespace) == []
    kept = {f"data-{brokers.name}-s{shard}-{member}" for shard in (0, 1) for member in (0, 1, 2)}
    assert kept <= brokers.claims(), "claims are retained"


def test_members_do_not_wait_for_a_change_that_waits_for_approval(
    kube: Kube, operator: Operator, account: list[str]
) -> None:
    """The shard that does not try the new template first gets members of its own."""
    assert operator.installed()
    brokers = scaled_cluster(kube)
    first = brokers.uids()
    held = {"updatePolicy": {"mode": "Manual"}, "brokers": {"config": {"broker.drain_seconds": 13}}}
    order(brokers, **held)
    what = f"a change of {brokers.name} waits for approval"
    until(lambda: _waits_for_approval(kube, brokers), what, seconds_max=60)
    account.append(f"1 -> 2 in {change_members(brokers, 2):.0f} s")
    drained = {pod: _settings(brokers, pod)["broker.drain_seconds"] for pod in brokers.names()}
    assert len(set(drained.values())) == 2, f"one shard alone tries it: {drained}"
    assert {drained[f"{brokers.name}-s{shard}-0"] for shard in (0, 1)} != {"13"}
    account.append(f"2 -> 1 in {change_members(brokers, 1):.0f} s")
    assert brokers.uids() == first, "nobody was restarted"
    assert defects(kube, brokers.namespace) == []
    kube.delete_namespace(brokers.namespace)


def _waits_for_approval(kube: Kube, brokers: Brokers) -> bool:
    found = condition(kube, "imc", brokers.namespace, brokers.name, "UpdatePending")
    return bool(found["status"] == "True")


def _lead(brokers: Brokers, pod: str, shard: int) -> None:
    """Have a member lead that is to leave: it has to hand over."""
    brokers.lead_on(brokers.node_of(pod), shard)
    until(lambda: brokers.master(shard) == pod, f"{pod} leads", seconds_max=60)


def _counted(brokers: Brokers) -> set[tuple[Any, ...]]:
    """Return what brokers say of how many members there are, and how many a put needs."""
    found = set()
    for pod in brokers.names():
        said = _settings(brokers, pod)
        found.add(tuple(said[key] for key in COUNTED))
    return found


def _settings(brokers: Brokers, pod: str) -> dict[str, Any]:
    items = brokers.ask(pod, "/admin/v1/config")["items"]
    return {item["key"]: item["value"] for item in items}
