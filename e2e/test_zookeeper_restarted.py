"""ZooKeeper's pods are restarted, one by one and then all at once, while clients work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from imago_e2e.clients import load
from imago_e2e.kube import is_ready, is_rig, until

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

READY_SECONDS_MAX = 90.0
KEPT_SECONDS = 0.0 if is_rig() else 35.0
"""For how long DNS servers lead to the former address of a pod; the suite's own keeps no answer."""


def test_restarting_zookeeper_loses_nothing(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    names, lost = [pod["metadata"]["name"] for pod in whole.servers()], whole.leases_lost()
    with load(whole, drivers, topic) as running:
        for name in names:
            _restart(whole, [name])
            time.sleep(KEPT_SECONDS)
            running.go_on(20)
        # Each of these leads, and was just back or is found by one that was.
        for _ in names:
            _restart(whole, [whole.zookeeper_leader()])
            time.sleep(KEPT_SECONDS)
            running.go_on(20)
        assert whole.leases_lost() == lost
        account.append(f"one by one, gaps: {running.gaps()}")
        running.calm()
        _restart(whole, names)
        whole.settled()
        running.go_on()
        account.append(f"all at once, gaps: {running.gaps()}")
        account.append(running.finish())


def _restart(brokers: Brokers, names: list[str]) -> None:
    before = {pod["metadata"]["uid"] for pod in brokers.servers()}
    brokers.kube.run("delete", "pod", *names, "-n", brokers.namespace, "--wait=false")

    def back() -> bool:
        pods = brokers.servers()
        fresh = [pod for pod in pods if pod["metadata"]["uid"] not in before]
        return len(fresh) == len(names) and len(pods) == 3 and all(map(is_ready, pods))

    until(back, f"{names} are back", seconds_max=READY_SECONDS_MAX)
