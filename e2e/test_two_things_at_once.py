"""One thing is under way when another is broken or ordered, and the operator dies of each step.

Whatever comes together, no acknowledged message is lost, all of it comes to its end by itself, and
`kubectl imago explain` says what is waited for meanwhile.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import backups, bulk, clusters, disks, draining
from imago_e2e.clients import load
from imago_e2e.killing import Killer
from imago_e2e.kube import KubeError, is_ready, until
from imago_e2e.operator import defects, status
from imago_e2e.ordering import imago, order, said, until_done

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers
    from imago_e2e.clients import Load
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

pytestmark = [pytest.mark.own_nodes, pytest.mark.timeout(1200)]
NAMESPACE: Final = "e2e-oncall"
BACKUPS: Final = "backups"
DONE_SECONDS_MAX: Final = 300.0
KILLS_MAX: Final = 4
"""Of one pair: each costs the time until another operator has the Lease."""
TAKEN: Final = 600 << 20
"""Of a disk of a gibibyte: more than the half at which it grows."""
_TAKE: Final = """\
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
os.posix_fallocate(file, 0, int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def watched(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """A cluster of three members on disks of their own, with one server of ZooKeeper."""
    assert operator.installed()
    kube.namespace(NAMESPACE)
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": BACKUPS, "namespace": NAMESPACE}
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    kube.apply({**kind, "metadata": metadata, "spec": claim})
    given = clusters.manifest(
        NAMESPACE,
        backup={"claimName": BACKUPS},
        zookeeper={"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
    )
    of = given["spec"]["brokers"]
    of |= {"config": clusters.SMALL, "storage": {"size": "1Gi", "storageClassName": "sized"}}
    yield clusters.make(kube, given)
    kube.delete_namespace(NAMESPACE)


@contextmanager
def told(
    brokers: Brokers,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> Iterator[Load]:
    """Clients work and the operator dies meanwhile; at the end everything is as ordered."""
    began = time.monotonic()
    with load(brokers, drivers, topic) as running:
        with Killer(brokers, operator, kills_max=KILLS_MAX) as killer:
            yield running
        brokers.settled()
        until_done(brokers, DONE_SECONDS_MAX)
        until(lambda: _settled(brokers), "nothing is left to do", seconds_max=120)
        running.go_on()
        account.append(f"done in {time.monotonic() - began:.0f} s; killed at {killer.steps}")
        account.append(running.finish())
    assert killer.steps
    assert "Stalled" not in said(brokers)
    assert defects(brokers.kube, NAMESPACE) == []


def test_a_member_is_fenced_while_zookeeper_grows(
    watched: Brokers,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    with told(watched, operator, drivers, topic, account) as running:
        order(watched, zookeeper={"managed": {"replicas": 3}})
        until(lambda: len(watched.servers()) > 1, "a server joins", seconds_max=60)
        fenced = watched.slaves()[0]
        imago(watched, "fence", fenced)
        took = until(lambda: _fenced(watched), f"{fenced} is fenced", seconds_max=120)
        text = _explained(watched)
        account.append(f"fenced after {took:.0f} s: {text}")
        assert "case 23 Fenced" in text
        assert f"{fenced}: fenced" in text
        grown = until(lambda: _serving(watched) == 3, "three serve", seconds_max=DONE_SECONDS_MAX)
        account.append(f"three servers serve {grown:.0f} s later")
        running.go_on()
        imago(watched, "unfence")


def test_a_backup_is_taken_while_a_member_moves(
    watched: Brokers,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    with told(watched, operator, drivers, topic, account) as running:
        bulk.send(watched, f"{topic}-bulk", 48)
        pod = watched.master()
        before = watched.kube.get("pvc", f"data-{pod}", "-n", NAMESPACE)["metadata"]["uid"]
        backups.order(watched, "meanwhile", bytes_a_second=2 << 20)
        watched.kube.run("annotate", "pod", pod, "-n", NAMESPACE, "imago.dev/move-member=true")
        until(lambda: _moves(watched) == pod, f"{pod} moves", seconds_max=120)
        account.append(_explained(watched))
        running.go_on()

        def moved() -> bool:
            claim = watched.kube.find("pvc", f"data-{pod}", "-n", NAMESPACE)
            return claim is not None and claim["metadata"]["uid"] != before and not _moves(watched)

        until(moved, f"{pod} has another claim", seconds_max=DONE_SECONDS_MAX)
        account.append(f"backed up {backups.until_taken(watched, 'meanwhile'):.0f} s later")


def test_disks_grow_while_a_node_is_drained(
    watched: Brokers,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    with told(watched, operator, drivers, topic, account) as running:
        grow = {"above": 50, "step": 100, "max": "2Gi", "coolDown": "1m"}
        order(watched, brokers={"storage": {"autoGrow": grow}})
        full, *_ = watched.slaves()
        taken = ("python3", "-c", _TAKE, disks.FILLER, str(TAKEN))
        watched.kube.execute(NAMESPACE, full, *taken)
        node = watched.node_of(watched.master())
        with draining.uncordoned(watched, node):
            draining.drain(watched, node, seconds=180)
            running.go_on()
            account.append(_explained(watched))
            until(lambda: _sizes(watched) == {2}, "all claims have grown", seconds_max=360, poll=1)
        disks.empty(watched, full)


def test_a_listener_is_added_while_brokers_roll(
    watched: Brokers,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    before = watched.uids()
    with told(watched, operator, drivers, topic, account) as running:
        order(watched, brokers={"config": {"broker.drain_seconds": 11}})
        until(lambda: watched.uids() != before, "the first one restarts", seconds_max=120)
        ports = {"firstNodePort": 30900}
        out = {"name": "out", "type": "NodePort", **ports}
        order(watched, listeners=[{"name": "in", "type": "Internal"}, out])
        account.append(_explained(watched))
        running.go_on()
        until(lambda: _rolled(watched), "all brokers have both", seconds_max=DONE_SECONDS_MAX)
        running.unrefused()


def _explained(brokers: Brokers) -> str:
    return imago(brokers, "explain").strip()


def _settled(brokers: Brokers) -> bool:
    return _explained(brokers).startswith(f"{brokers.name}: case 25 Settled")


def _fenced(brokers: Brokers) -> bool:
    return said(brokers).get("Fenced", {}).get("reason") == "MembersFenced"


def _serving(brokers: Brokers) -> int:
    return len([pod for pod in brokers.servers() if is_ready(pod)])


def _moves(brokers: Brokers) -> str:
    found = status(brokers.kube, "imc", brokers.namespace, brokers.name).get("movedMember")
    return str(found["pod"]) if found else ""


def _sizes(brokers: Brokers) -> set[int]:
    return {disks.claimed_bytes(brokers, f"{brokers.name}-s0-{n}") // disks.GIB for n in range(3)}


def _rolled(brokers: Brokers) -> bool:
    """Whether every broker runs with the new setting, and has the port of the new listener."""
    for pod in brokers.pods():
        ports = {one["containerPort"] for one in pod["spec"]["containers"][0]["ports"]}
        items = brokers.ask(pod["metadata"]["name"], "/admin/v1/config")["items"]
        config: dict[str, Any] = {item["key"]: item["value"] for item in items}
        if len(ports) < 8 or float(config["broker.drain_seconds"]) != 11:
            raise KubeError(f"{pod['metadata']['name']}: {sorted(ports)}")
    return True
