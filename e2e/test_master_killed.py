"""The pod of the master is killed while clients of both protocols work: nothing is lost."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from imago_e2e import gaps, machine
from imago_e2e.clients import load
from imago_e2e.kube import is_rig, until

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver


def _kill(brokers: Brokers, name: str) -> None:
    """Without a word to anybody, where that can be done; else as fast as Kubernetes can."""
    pod = brokers.kube.get("pod", name, "-n", brokers.namespace)
    if is_rig():
        machine.send(pod, "imago broker", signal.SIGKILL)
    else:
        now = ("--grace-period=0", "--force")
        brokers.kube.run("delete", "pod", name, "-n", brokers.namespace, *now)


@pytest.mark.smoke
def test_killing_the_master_pod_loses_nothing(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    before = whole.master()
    with load(whole, drivers, topic) as running:
        _kill(whole, before)
        until(lambda: whole.master() != before, "another member leads", seconds_max=30)
        running.go_on(300)
        whole.settled()
        account.append(running.finish())
        gaps.after_a_process(running)
