"""Something goes wrong while a rollout is under way: the operator never makes it worse.

Each fault is told twice on a cluster of two shards: alone, and with a change that restarts every
broker. With the change nothing more is lost, nobody waits longer, and at no moment has the operator
taken away two brokers.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from imago_e2e import machine
from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import until_ready
from imago_e2e.watching import Watch
from imago_testing.interop.drivers import ROCKETMQ5

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_e2e.brokers import Brokers
    from imago_e2e.clients import Load
    from imago_testing.java.driver import JavaDriver

pytestmark = pytest.mark.own_nodes

SHARDS: Final = 2
ROLLED_SECONDS_MAX: Final = 400.0
SETTLES_SECONDS_MAX: Final = 180.0
SETTING: Final = "broker.drain_seconds"
NOISE_SECONDS: Final = 3.0
"""By how much the longest gaps of two runs with the same fault differ on two busy cores."""
ZOOKEEPER_STOPS_SECONDS: Final = 20.0
ORDERED_BEFORE_SECONDS: Final = 3.0
"""How long before ZooKeeper goes on the change is ordered."""


class Rollout:
    """A change that restarts every broker; in the control it is not ordered."""

    def __init__(self, brokers: Brokers, *, real: bool) -> None:
        self.real = real
        self._brokers = brokers
        self._before = brokers.uids()

    def order(self) -> None:
        if not self.real:
            return
        named = ("imc", self._brokers.name, "-n", self._brokers.namespace)
        spec = self._brokers.kube.get(*named)["spec"]
        now = spec["brokers"].get("config", {}).get(SETTING)
        patch = json.dumps({"spec": {"brokers": {"config": {SETTING: 12 if now == 11 else 11}}}})
        self._brokers.kube.run("patch", *named, "--type=merge", "-p", patch)

    def over(self) -> None:
        """Wait until every broker was restarted, and is whole again."""

        def rolled() -> bool:
            pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self._brokers.pods()}
            return all(uid != self._before[name] for name, uid in pods.items())

        if self.real:
            until(rolled, "all brokers are restarted", seconds_max=ROLLED_SECONDS_MAX)
        self._brokers.settled(SHARDS, seconds_max=SETTLES_SECONDS_MAX)
        named = (self._brokers.namespace, self._brokers.name)
        until_ready(self._brokers.kube, "imc", *named, seconds_max=60)


def zookeeper_stops(brokers: Brokers, rollout: Rollout) -> None:
    servers = brokers.servers()
    with contextlib.ExitStack() as asleep:
        for pod in servers:
            machine.send(pod, "QuorumPeerMain", signal.SIGSTOP)
            asleep.callback(machine.send, pod, "QuorumPeerMain", signal.SIGCONT)
        time.sleep(ZOOKEEPER_STOPS_SECONDS - ORDERED_BEFORE_SECONDS)
        rollout.order()
        time.sleep(ORDERED_BEFORE_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one run came to."""

    gaps: dict[str, float]
    errors: dict[str, int]
    restarted: list[str]


FAULTS: Final = (zookeeper_stops,)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_rollout_makes_a_fault_no_worse(
    pair: Brokers,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
    fault: Callable[[Brokers, Rollout], None],
) -> None:
    told = {}
    for real in (False, True):
        name = "rollout" if real else "control"
        pair.settled(SHARDS)
        with (
            load(pair, drivers, f"{topic}-{name}", retries={ROCKETMQ5: 0}) as running,
            Watch(pair) as watch,
        ):
            rollout = Rollout(pair, real=real)
            fault(pair, rollout)
            rollout.over()
            told[real] = _end(running, watch)
            account.append(f"{fault.__name__}, {name}: {told[real]}")
            account.append(running.finish())
            assert watch.disturbed_together() == []
    assert told[False].restarted == [], "without a change the operator takes nobody away"
    assert len(told[True].restarted) == SHARDS * 3, "each broker is restarted once"
    for client, gap in told[True].gaps.items():
        assert gap <= told[False].gaps[client] + NOISE_SECONDS, client


def _end(running: Load, watch: Watch) -> Told:
    running.go_on()
    return Told(gaps=running.gaps(), errors=running.errors(), restarted=watch.restarted())
