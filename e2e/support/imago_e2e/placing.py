"""Where a master is, how a person brings it elsewhere, and what the loss of its node does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_e2e import gaps
from imago_e2e.clients import load
from imago_e2e.kube import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

NEVER_CUT: Final = "node1"
"""The node of the control plane and of the clients."""


def lead_elsewhere(brokers: Brokers, node: str, shard: int = 0) -> None:
    """Hand the mastership over until its pod is not on this node."""

    def elsewhere() -> bool:
        master = brokers.master(shard)
        if brokers.node_of(master) != node:
            return True
        brokers.ask(master, "/admin/v1/handover", "POST", {})
        return False

    until(elsewhere, f"the master is not on {node}", seconds_max=60)


def lose_the_masters_node(
    brokers: Brokers,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
    without: Callable[[str], AbstractContextManager[None]],
) -> None:
    """Do without the node that holds the master for a while, under load.

    Another member leads, all clients go on in time, and nothing that was acknowledged is lost.
    """
    lead_elsewhere(brokers, NEVER_CUT)
    before = brokers.master()
    node = brokers.node_of(before)
    with load(brokers, drivers, topic) as running:
        with without(node):
            until(lambda: brokers.master() != before, "another member leads", seconds_max=60)
            running.go_on()
        brokers.settled(seconds_max=180)
        running.go_on()
        account.append(running.finish())
        gaps.after_a_node(running)
