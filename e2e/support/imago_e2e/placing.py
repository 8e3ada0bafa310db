"""Where a master is, and how a person brings it elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_e2e.kube import until

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers

NEVER_CUT: Final = "node1"
"""The node of the control plane and of the clients."""


def lead_elsewhere(brokers: Brokers, node: str) -> None:
    """Hand the mastership over until its pod is not on this node."""

    def elsewhere() -> bool:
        master = brokers.master()
        if brokers.node_of(master) != node:
            return True
        brokers.ask(master, "/admin/v1/handover", "POST", {})
        return False

    until(elsewhere, f"the master is not on {node}", seconds_max=60)
