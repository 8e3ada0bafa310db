"""Draining nodes, as `kubectl drain` does."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from imago_e2e.kube import is_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers

ZOOKEEPERS: Final = 3


def drain(brokers: Brokers, node: str, *, seconds: int) -> None:
    """Evict what the cluster has on a node, by the eviction interface."""
    chosen = f"--pod-selector=imago.dev/cluster={brokers.name}"
    flags = (chosen, "--delete-emptydir-data", "--ignore-daemonsets", f"--timeout={seconds}s")
    brokers.kube.run("drain", node, *flags, seconds_max=seconds + 30)


@contextlib.contextmanager
def uncordoned(brokers: Brokers, node: str) -> Iterator[None]:
    """Let pods come to a node again at the end of the block."""
    try:
        yield
    finally:
        brokers.kube.run("uncordon", node)


def apart(brokers: Brokers) -> bool:
    """Whether all servers of ZooKeeper are ready, each on a node of its own."""
    servers = brokers.servers()
    ready = [pod["spec"]["nodeName"] for pod in servers if is_ready(pod)]
    return len(ready) == len(set(ready)) == len(servers) == ZOOKEEPERS


def put_leaders_together(brokers: Brokers, shards: int) -> tuple[str, list[str]]:
    """Have all masters lead beside ZooKeeper's leader; return that node, and the pods."""
    leader = brokers.zookeeper_leader()
    node = brokers.node_of(leader)
    for shard in range(shards):
        brokers.lead_on(node, shard)
    return node, [leader, *map(brokers.master, range(shards))]
