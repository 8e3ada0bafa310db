"""A cluster is backed up while clients send, deleted with all it has, and begun again from that.

The restore of two members is killed in the middle. What was acknowledged before the backup began is
read by the original clients, groups go on where they were, and clients of both protocols work on.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import pytest

from imago_e2e import backups, bulk, clusters, machine, objects
from imago_e2e.clients import load, read_again
from imago_e2e.kube import KubeError, until
from imago_e2e.operator import defects, status

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

pytestmark = pytest.mark.own_nodes
NAMESPACE: Final = "e2e-backup"
AGAIN: Final = "e2e-recovered"
KILLED_SECONDS_MAX: Final = 120.0
MEBIBYTES: Final = 256
"""Enough that a restore takes some seconds."""


@pytest.mark.usefixtures("bucket")
def test_a_cluster_that_was_deleted_begins_with_its_backup(
    kube: Kube,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    assert operator.installed()
    place = objects.place(kube, kube.namespace(NAMESPACE), "backups")
    brokers = clusters.make(kube, clusters.manifest(NAMESPACE, backup=place))
    bulk.send(brokers, f"{topic}-bulk", MEBIBYTES)
    with load(brokers, drivers, topic) as running:
        before = {name: set(acks) for name, acks in running.acknowledged().items()}
        account.append(f"backed up in {_back_up(brokers, 'under-load'):.0f} s: {running.gaps()}")
        running.go_on()
        account.append(running.finish())
        running.unharmed()
    after = {name: set(acks) for name, acks in running.acknowledged().items()}
    account.append(f"the rest in {_back_up(brokers, 'at-rest'):.0f} s")
    stored = {name: brokers.stored(f"{topic}-{name}") for name in (*drivers, "bulk")}
    kube.delete_namespace(NAMESPACE)

    for backup, wanted in (("under-load", before), ("latest", after)):
        restored = _recover(kube, backup, account)
        read_again(restored, drivers, topic, wanted)
        many = {name: len(bodies) for name, bodies in wanted.items()}
        account.append(f"{backup}: read again {many}")
        if backup == "latest":
            assert {name: restored.stored(f"{topic}-{name}") for name in stored} == stored
            with load(restored, drivers, f"{topic}-2") as running:
                account.append(running.finish())
        assert defects(kube, AGAIN) == []
        kube.delete_namespace(AGAIN)


def _back_up(brokers: Brokers, name: str) -> float:
    backups.order(brokers, name)
    return backups.until_taken(brokers, name)


def _recover(kube: Kube, backup: str, account: list[str]) -> Brokers:
    """Make a cluster of a backup; of two of its members the restore is killed on the way."""
    place = objects.place(kube, kube.namespace(AGAIN), "backups")
    given = clusters.manifest(AGAIN, bootstrap={"recovery": {**place, "backup": backup}})
    kube.apply(given)
    killed = until(lambda: _killed(kube, 0), "a restore is killed", seconds_max=60, poll=0.05)
    until(lambda: _taken_away(kube, 1), "a pod is taken away", seconds_max=60, poll=0.05)
    account.append(f"{backup}: killed after {killed:.1f} s")
    restored = clusters.make(kube, given)
    told = until(
        lambda: status(kube, "imc", AGAIN, "demo").get("recoveredFrom"),
        "the status names the backup",
        seconds_max=60,
    )
    account.append(f"{backup}: named {told:.1f} s after all were ready")
    return restored


def _pod(kube: Kube, member: int) -> dict[str, object]:
    """Return the pod of a member whose restore is under way; KubeError: it is not."""
    pod: dict[str, object] = kube.get("pod", f"demo-s0-{member}", "-n", AGAIN)
    machine.send(pod, "backup restore", signal.SIGCONT)  # does nothing, but has to be there
    return pod


def _killed(kube: Kube, member: int) -> bool:
    machine.send(_pod(kube, member), "backup restore", signal.SIGKILL)
    return True


def _taken_away(kube: Kube, member: int) -> bool:
    try:
        _pod(kube, member)
    except KubeError:
        # It may have ended meanwhile: then nothing is in the middle of anything.
        if kube.pods(AGAIN, "imago.dev/component=broker,imago.dev/role=master"):
            return True
        raise
    now = ("--grace-period=0", "--force", "--wait=false")
    kube.run("delete", "pod", f"demo-s0-{member}", "-n", AGAIN, *now)
    return True
