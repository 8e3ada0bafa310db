"""The power of the node that holds the master is cut: another member leads, nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_e2e import machine, placing

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

pytestmark = pytest.mark.own_nodes


def test_a_power_cut_of_the_masters_node_loses_nothing(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    placing.lose_the_masters_node(whole, drivers, topic, account, machine.without_power)
