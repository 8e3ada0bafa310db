"""The power of the node that holds the master is cut: another member leads, nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_e2e import machine, placing
from imago_e2e.clients import load
from imago_e2e.kube import until

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

pytestmark = pytest.mark.own_nodes


def test_a_power_cut_of_the_masters_node_loses_nothing(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    placing.lead_elsewhere(whole, placing.NEVER_CUT)
    before = whole.master()
    node = whole.node_of(before)
    with load(whole, drivers, topic) as running:
        with machine.without_power(node):
            until(lambda: whole.master() != before, "another member leads", seconds_max=60)
            running.go_on()
        whole.settled(seconds_max=180)
        running.go_on()
        account.append(running.finish())
