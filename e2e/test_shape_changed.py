"""A trial cluster becomes one for production, and less again, while clients of both protocols work.

More members and servers, other disks, another place, then fewer: no message is lost or comes twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters
from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import defects, status
from imago_e2e.ordering import order, until_done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_e2e.brokers import Brokers
    from imago_e2e.clients import Load
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

NAMESPACE: Final = "e2e-shape"
FIXED: Final = "e2e-fixed"
"""A storage class whose volumes cannot grow."""
GAP_SECONDS_MAX: Final = 3.0
CHANGED_SECONDS_MAX: Final = 300.0


@pytest.fixture
def trial(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """A cluster of one shard, one member and one server, on disks that cannot grow."""
    assert operator.installed()
    kube.apply(_fixed(kube))
    given = clusters.manifest(
        kube.namespace(NAMESPACE),
        brokers={"replicasPerShard": 1, "storage": {"size": "1Gi", "storageClassName": FIXED}},
        zookeeper={"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
    )
    yield clusters.make(kube, given)
    kube.delete_namespace(NAMESPACE)
    kube.run("delete", "storageclass", FIXED, "--ignore-not-found")


@pytest.mark.timeout(1200)
def test_a_trial_cluster_grows_into_production_and_back(
    trial: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    gaps = []
    changes: dict[str, Callable[[], float]] = {
        "1 -> 3 members": lambda: _members(trial, 3),
        "1 -> 3 servers": lambda: _servers(trial, 3),
        "the master moves": lambda: _moved(trial, trial.master()),
        "larger disks": lambda: _other_disks(trial, size="2Gi"),
        "another class": lambda: _other_disks(trial, storageClassName="standard"),
        "3 -> 2 members": lambda: _members(trial, 2),
        "3 -> 1 servers": lambda: _servers(trial, 1),
    }
    with load(trial, drivers, topic) as running:
        for what, change in changes.items():
            seconds = change()
            running.go_on()
            gaps.append(_told(running, what, seconds, account))
        assert _nobody_moves(trial)
        account.append(running.finish())
        running.unharmed()
    assert max(gaps) <= GAP_SECONDS_MAX
    assert trial.leases_lost() == dict.fromkeys(trial.names(), 0)
    assert defects(trial.kube, NAMESPACE) == []


def _told(running: Load, what: str, seconds: float, account: list[str]) -> float:
    gaps = running.gaps()
    account.append(f"{what}: {seconds:.0f} s, gaps {gaps}, errors {running.errors()}")
    print(account[-1], flush=True)
    running.calm()
    return max(gaps.values())


def _members(brokers: Brokers, many: int) -> float:
    order(brokers, brokers={"replicasPerShard": many})
    return brokers.settled(1, many, seconds_max=CHANGED_SECONDS_MAX) + until_done(brokers)


def _servers(brokers: Brokers, many: int) -> float:
    order(brokers, zookeeper={"managed": {"replicas": many}})

    def there() -> bool:
        return len(brokers.servers()) == many

    what = f"{brokers.name} has {many} servers of ZooKeeper"
    return until(there, what, seconds_max=CHANGED_SECONDS_MAX) + until_done(brokers)


def _moved(brokers: Brokers, pod: str) -> float:
    """Have one member begin anew elsewhere."""
    before = _claim_uids(brokers)[f"data-{pod}"]
    brokers.kube.run("annotate", "pod", pod, "-n", brokers.namespace, "imago.dev/move-member=true")

    def moved() -> bool:
        found = _claim_uids(brokers).get(f"data-{pod}", before)
        return found != before and _nobody_moves(brokers)

    took = until(moved, f"{pod} has another claim", seconds_max=CHANGED_SECONDS_MAX)
    return took + brokers.settled() + until_done(brokers)


def _other_disks(brokers: Brokers, **storage: str) -> float:
    """Have all members begin anew, one by one, since their disks cannot become what is wanted."""
    before = _claim_uids(brokers)
    order(brokers, brokers={"storage": storage})

    def exchanged() -> bool:
        found = _claim_uids(brokers)
        moved = [name for name in before if name.startswith("data-demo-s0")]
        return _nobody_moves(brokers) and all(
            found.get(name, before[name]) != before[name] for name in moved
        )

    took = until(exchanged, "all members have other claims", seconds_max=CHANGED_SECONDS_MAX)
    return took + brokers.settled() + until_done(brokers)


def _nobody_moves(brokers: Brokers) -> bool:
    told = status(brokers.kube, "imc", brokers.namespace, brokers.name)
    return told.get("movedMember") is None


def _claim_uids(brokers: Brokers) -> dict[str, str]:
    found = brokers.kube.get("pvc", "-n", brokers.namespace)["items"]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def _fixed(kube: Kube) -> dict[str, Any]:
    """Return a class like the default one, whose volumes cannot grow."""
    found: dict[str, Any] = kube.get("storageclass", "standard")
    found["metadata"] = {"name": FIXED}
    return {**found, "allowVolumeExpansion": False}
