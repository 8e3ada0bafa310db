"""A node that holds masters is drained: refused while a member lags, then done unnoticed, also when
ZooKeeper's leader goes with them.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

import pytest

from imago_e2e import machine
from imago_e2e.clients import load
from imago_e2e.kube import KubeError, is_ready, until
from imago_testing.interop.drivers import ROCKETMQ5

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

pytestmark = pytest.mark.own_nodes
SHARDS, ZOOKEEPERS = 2, 3
GAP_SECONDS_MAX = 1.0
REFUSED = "violate the pod's disruption budget"


def test_draining_waits_for_the_member_that_lags(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    master, lagging = whole.master(), whole.slaves()[0]
    node, uids = whole.node_of(master), whole.uids()
    with _uncordoned(whole, node), _asleep(whole, lagging):
        with pytest.raises(KubeError, match=REFUSED):
            _drain(whole, node, seconds=5)
        assert whole.uids()[master] == uids[master], "the master was not touched"
    whole.settled()
    master = whole.master()
    node, uids = whole.node_of(master), whole.uids()
    with load(whole, drivers, topic) as running, _uncordoned(whole, node):
        _drain(whole, node, seconds=120)
        assert whole.uids().get(master) != uids[master]
        assert whole.master() != master
        running.go_on()
        whole.kube.run("uncordon", node)
        whole.settled()
        running.go_on()
        account.append(f"while it was drained, gaps: {running.gaps()}")
        account.append(running.finish())
        running.unharmed()


def test_draining_takes_masters_and_zookeepers_leader_unnoticed(
    pair: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    pair.settled(SHARDS)
    leader = pair.zookeeper_leader()
    node, uids = pair.node_of(leader), pair.uids()
    for shard in range(SHARDS):
        pair.lead_on(node, shard)
    gone = [leader, *map(pair.master, range(SHARDS))]
    pair.settled(SHARDS)
    with (
        load(pair, drivers, topic, retries={ROCKETMQ5: 0}) as running,
        _uncordoned(pair, node),
    ):
        _drain(pair, node, seconds=120)
        assert all(pair.uids().get(name) != uids[name] for name in gone), "all three were evicted"
        running.go_on()
        pair.kube.run("uncordon", node)
        pair.settled(SHARDS)
        running.go_on()
        account.append(f"{gone} drained, gaps: {running.gaps()}, errors: {running.errors()}")
        account.append(running.finish())
        running.unharmed()
        assert max(running.gaps().values()) <= GAP_SECONDS_MAX
    until(lambda: _apart(pair), "no node has a majority of ZooKeeper", seconds_max=120)
    pair.settled(SHARDS)


def _apart(brokers: Brokers) -> bool:
    """Whether three servers are ready, each on a node of its own."""
    ready = [pod["spec"]["nodeName"] for pod in brokers.servers() if is_ready(pod)]
    return len(ready) == len(set(ready)) == ZOOKEEPERS


def _drain(brokers: Brokers, node: str, *, seconds: int) -> None:
    """Evict what the cluster has on a node, as `kubectl drain` does: by the eviction interface."""
    chosen = f"--pod-selector=imago.dev/cluster={brokers.name}"
    flags = (chosen, "--delete-emptydir-data", "--ignore-daemonsets", f"--timeout={seconds}s")
    brokers.kube.run("drain", node, *flags, seconds_max=seconds + 30)


@contextlib.contextmanager
def _uncordoned(brokers: Brokers, node: str) -> Iterator[None]:
    try:
        yield
    finally:
        brokers.kube.run("uncordon", node)


@contextlib.contextmanager
def _asleep(brokers: Brokers, name: str) -> Iterator[None]:
    """Let a broker fall silent, until Kubernetes has noticed and for as long as the block lasts."""

    def pod() -> dict[str, object]:
        return dict(brokers.kube.get("pod", name, "-n", brokers.namespace))

    machine.send(pod(), "imago broker", signal.SIGSTOP)
    try:
        until(lambda: not is_ready(pod()), f"{name} is not ready", seconds_max=60)
        yield
    finally:
        machine.send(pod(), "imago broker", signal.SIGCONT)
