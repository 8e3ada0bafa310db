"""A node that holds a master is drained while a member lags: refused.

Drains that are done, of all leaders together and during a rollout: `test_faults_during_rollout`.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

import pytest

from imago_e2e import draining, machine
from imago_e2e.kube import KubeError, is_ready, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers

pytestmark = pytest.mark.own_nodes
REFUSED = "violate the pod's disruption budget"


def test_draining_waits_for_the_member_that_lags(whole: Brokers) -> None:
    master, lagging = whole.master(), whole.slaves()[0]
    node, uids = whole.node_of(master), whole.uids()
    with draining.uncordoned(whole, node), _asleep(whole, lagging):
        with pytest.raises(KubeError, match=REFUSED):
            draining.drain(whole, node, seconds=5)
        assert whole.uids()[master] == uids[master], "the master was not touched"
    whole.settled()


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
