"""Something goes wrong while a rollout is under way: the operator never makes it worse.

Each fault is told twice on a cluster of two shards: alone, and with a change that restarts every
broker. With the change nothing more is lost, nobody waits longer, and at no moment has the operator
taken away two brokers, or one whose fellows could not do without it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from imago_e2e import disks, draining, gaps, machine, placing
from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import Operator
from imago_e2e.rollouts import Rollout
from imago_e2e.watching import Watch
from imago_testing.interop.drivers import ROCKETMQ5

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_e2e.brokers import Brokers
    from imago_e2e.clients import Load
    from imago_testing.java.driver import JavaDriver

pytestmark = pytest.mark.own_nodes

SHARDS: Final = 2
NOISE_SECONDS: Final = 3.0
"""By how much the longest gaps of two runs with the same fault differ on two busy cores."""
ZOOKEEPER_STOPS_SECONDS: Final = 20.0
ORDERED_BEFORE_SECONDS: Final = 3.0
"""How long before ZooKeeper goes on the change is ordered."""
UNNOTICED_SECONDS_MAX: Final = 1.0
NODE_OFF_SECONDS: Final = 25.0
SEND_SECONDS: Final = 10.0
"""How long the suite's clients wait for a send (`SEND_TIMEOUT_MS` of their drivers): whether one is
under way to a node that falls silent is chance, and differs between two runs."""
DISK_FULL_SECONDS: Final = 10.0
GROWTH_GIB: Final = 2
"""Twice what was there, so that brokers take messages again and delete none for want of room."""


def zookeeper_stops(brokers: Brokers, rollout: Rollout) -> None:
    servers = brokers.servers()
    with contextlib.ExitStack() as asleep:
        for pod in servers:
            machine.send(pod, "QuorumPeerMain", signal.SIGSTOP)
            asleep.callback(machine.send, pod, "QuorumPeerMain", signal.SIGCONT)
        time.sleep(ZOOKEEPER_STOPS_SECONDS - ORDERED_BEFORE_SECONDS)
        rollout.order()
        time.sleep(ORDERED_BEFORE_SECONDS)


def a_masters_disk_is_full_until_it_grows(brokers: Brokers, rollout: Rollout) -> None:
    rollout.order()
    rollout.under_way()
    master = brokers.master(1)
    before = disks.size_bytes(brokers, master)
    disks.fill(brokers, master)
    until(lambda: disks.refuses(brokers, master), f"{master} refuses messages", seconds_max=60)
    time.sleep(DISK_FULL_SECONDS)
    disks.grow(brokers, GROWTH_GIB)

    def larger() -> bool:  # its pod may be the one that is being restarted
        return disks.size_bytes(brokers, master) >= before + GROWTH_GIB * disks.GIB * 0.9

    until(larger, "the broker sees a larger disk", seconds_max=60)
    until(lambda: not disks.refuses(brokers, master), "it takes messages again", seconds_max=60)


def a_masters_node_dies(brokers: Brokers, rollout: Rollout) -> None:
    placing.lead_elsewhere(brokers, placing.NEVER_CUT, shard=1)
    rollout.order()
    rollout.under_way()
    with rollout.without_power(brokers.node_of(brokers.master(1))):
        time.sleep(NODE_OFF_SECONDS)


def a_node_with_all_leaders_is_drained(brokers: Brokers, rollout: Rollout) -> None:
    node, _ = draining.put_leaders_together(brokers, SHARDS)
    brokers.settled(SHARDS)
    rollout.order()
    rollout.under_way()
    with draining.uncordoned(brokers, node):
        draining.drain(brokers, node, seconds=120)
        there = {pod["spec"].get("nodeName") for pod in (*brokers.pods(), *brokers.servers())}
        assert node not in there, "all its pods were evicted"


def one_of_two_operators_dies(brokers: Brokers, rollout: Rollout) -> None:
    operator = Operator(brokers.kube)
    operator.scale(2)
    rollout.order()
    rollout.under_way()
    before = operator.holder()
    operator.kill(before)
    until(lambda: operator.holder() not in {before, ""}, "the other works", seconds_max=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong, and what of it is to be seen."""

    happens: Callable[[Brokers, Rollout], None]
    takes: int = 0
    """How many brokers it takes away itself, of as many shards."""
    noticed: bool = True
    """Whether clients may notice it; else they get no error, and wait no longer than UNNOTICED."""
    silent: bool = False
    """Whether brokers are gone without a word, so that clients wait for answers that never come."""


FAULTS: Final = (
    Fault(happens=zookeeper_stops),
    Fault(happens=one_of_two_operators_dies, noticed=False),
    Fault(happens=a_masters_disk_is_full_until_it_grows),
    Fault(happens=a_node_with_all_leaders_is_drained, takes=2, noticed=False),
    Fault(happens=a_masters_node_dies, silent=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one run came to."""

    seconds: float
    gaps: dict[str, float]
    errors: dict[str, int]
    taken: list[str]
    evicted: list[str]
    """Those that Kubernetes took from a node that was not ready: restarted, but by nobody."""


@pytest.fixture
def restored(pair: Brokers) -> Iterator[Brokers]:
    """The cluster of two shards, with room on its disks and one operator when the story ends."""
    yield pair
    Operator(pair.kube).scale(1)
    for pod in pair.names():
        disks.empty(pair, pod)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.happens.__name__)
def test_a_rollout_makes_a_fault_no_worse(
    restored: Brokers,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
    fault: Fault,
) -> None:
    told = {}
    for real in (False, True):
        name = "rollout" if real else "control"
        restored.settled(SHARDS)
        began = time.monotonic()
        with (
            load(restored, drivers, f"{topic}-{name}", retries={ROCKETMQ5: 0}) as running,
            Watch(restored) as watch,
        ):
            rollout = Rollout(restored, watch, SHARDS, real=real)
            fault.happens(restored, rollout)
            rollout.over()
            until(lambda: draining.apart(restored), "ZooKeeper is spread", seconds_max=120)
            told[real] = _end(running, watch, began)
            account.append(f"{fault.happens.__name__}, {name}: {told[real]}")
            account.append(running.finish())
            assert watch.disturbed_together(shards=max(1, fault.takes)) == []
            if fault.silent:
                gaps.after_a_node(running)
            if not fault.noticed:
                running.unrefused()
                assert max(running.gaps().values()) <= UNNOTICED_SECONDS_MAX
    assert len(told[False].taken) == fault.takes, "without a change the operator takes nobody away"
    once = SHARDS * 3
    restarted = len(told[True].taken)
    least = once - len(told[True].evicted)
    assert least <= restarted <= once + fault.takes, "each broker is restarted once"
    hangs = SEND_SECONDS if fault.silent else 0.0
    for client, gap in told[True].gaps.items():
        assert gap <= max(told[False].gaps[client], hangs) + NOISE_SECONDS, client


def _end(running: Load, watch: Watch, began: float) -> Told:
    running.go_on()
    return Told(
        seconds=round(time.monotonic() - began),
        gaps=running.gaps(),
        errors=running.errors(),
        taken=watch.taken(),
        evicted=watch.evicted(),
    )
