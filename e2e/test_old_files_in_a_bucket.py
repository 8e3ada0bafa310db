"""Old files of the log are in MinIO alone, and original clients read them as before.

Also by another master, and after a time in which the bucket answered nobody: until then what is on
the disks is served, the cluster says why the rest waits, and nothing is skipped.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import bulk, clusters, machine, objects
from imago_e2e.clients import load, read_again, reading_again
from imago_e2e.kube import until
from imago_e2e.operator import defects

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.clients import Load
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

pytestmark = pytest.mark.own_nodes
NAMESPACE: Final = "e2e-tiered"
FILE: Final = 1 << 20
SMALL: Final = {
    "store.segment_bytes_max": FILE,
    "rocketmq.message_bytes_max": 200 << 10,
    "metaq.message_bytes_max": 200 << 10,
}
LEFT_SECONDS_MAX: Final = 120.0
SAID_SECONDS_MAX: Final = 200.0
"""A bucket that hangs is given four tries of thirty seconds each."""


@pytest.mark.usefixtures("bucket")
def test_old_messages_are_read_from_the_bucket(
    kube: Kube,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    assert operator.installed()
    brokers = _cluster(kube)
    with load(brokers, drivers, topic) as running:
        old = _leaves(brokers, running, topic, account)
        read_again(brokers, drivers, topic, old)
        account.append(f"read from the bucket: { {name: len(all_) for name, all_ in old.items()} }")

        before = brokers.master()
        machine.send(kube.get("pod", before, "-n", NAMESPACE), "imago broker", signal.SIGKILL)
        until(lambda: brokers.master() != before, "another member leads", seconds_max=60)
        brokers.settled()
        read_again(brokers, drivers, topic, old)
        account.append(f"and by the next master; gaps: {running.gaps()}")

        newer = _leaves(brokers, running, topic, account)
        running.calm()
        refused = running.errors()  # while there was no master
        with reading_again(brokers, drivers, topic) as readers:
            with objects.silent(kube):
                running.go_on(200)
                said = until(
                    lambda: _tier(brokers)["problem"],
                    "the master says it",
                    seconds_max=SAID_SECONDS_MAX,
                )
                problem = _tier(brokers)["problem"]
                account.append(f"silent bucket: {problem!r} after {said:.0f} s, {running.gaps()}")
                assert running.errors() == refused, "nobody is refused for the bucket"
            for name, reader in readers.items():
                reader.until_got(newer[name])
        until(
            lambda: not _tier(brokers)["problem"], "all is well again", seconds_max=SAID_SECONDS_MAX
        )
        account.append(running.finish())
    assert defects(kube, NAMESPACE) == []
    kube.delete_namespace(NAMESPACE)


def _cluster(kube: Kube) -> Brokers:
    place = objects.place(kube, kube.namespace(NAMESPACE), "old")
    given = clusters.manifest(NAMESPACE)
    of = given["spec"]["brokers"]
    of["config"] |= SMALL
    of["tieredStorage"] = {**place, "localRetention": "10s", "cacheSize": "64Mi"}
    return clusters.make(kube, given)


def _leaves(
    brokers: Brokers, running: Load, topic: str, account: list[str]
) -> dict[str, set[bytes]]:
    """Return what was acknowledged, once no disk has a file of it."""
    running.go_on()
    found = {name: set(all_) for name, all_ in running.acknowledged().items()}
    end = _files(brokers, brokers.master())[-1]
    bulk.send(brokers, f"{topic}-bulk", 4)

    def left() -> bool:
        return all(_files(brokers, pod)[0] > end for pod in brokers.names())

    took = until(left, f"no disk has bytes below {end + FILE}", seconds_max=LEFT_SECONDS_MAX)
    account.append(f"old files left the disks after {took:.0f} s: {_tier(brokers)}")
    return found


def _files(brokers: Brokers, pod: str) -> list[int]:
    """Return where the files of a member's log begin."""
    listed = brokers.kube.execute(brokers.namespace, pod, "ls", "/data/commitlog")
    return sorted(map(int, listed.split()))


def _tier(brokers: Brokers) -> dict[str, Any]:
    found: dict[str, Any] = brokers.ask(brokers.master(), "/admin/v1/status")["tier"]
    return found
