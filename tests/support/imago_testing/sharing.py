"""Which tests share a worker, and in which order they begin, when several workers run them.

Tests of one module share processes and what else is made once for a module, so a module runs on one
worker from its first test to its last. The tests of the original Java clients share three JVMs and
a cluster, those that make clusters of their own share three others, those of SDKs share programs,
those of Spark a session: each is a group. Two workers of three begin with the groups that mostly
wait for processes, the longest first, so that no worker is left with one at the end. The third
begins at the other end, with tests that only compute, and so uses the time in which the others
wait. They meet in the middle.

`pytest -n 4 --dist loadgroup` goes by it. Groups come from the tests' names and not from markers of
pytest-xdist: it writes those into a field that pytest 9.2 no longer reads, and then shares nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

SHARED: Final = {
    **dict.fromkeys(
        (
            "tests/interop/cross/test_cross_drain.py",
            "tests/interop/cross/test_cross_handover.py",
            "tests/interop/cross/test_cross_metaq_files.py",
            "tests/interop/cross/test_cross_metaq_slaves.py",
            "tests/interop/cross/test_cross_metaq_xa.py",
            "tests/interop/cross/test_cross_restart.py",
            "tests/interop/cross/test_cross_secured_zookeeper.py",
        ),
        "java with clusters of its own",
    ),
    "tests/interop/rocketmq/test_rocketmq_access.py": "java with users",
    "tests/interop/rocketmq/test_rocketmq_tls.py": "java with TLS",
    "tests/interop/test_sdks.py": "SDKs",
    "tests/interop/": "java",
    "tests/spark/": "spark",
}
"""Folder or module → the group of all its tests, the first that fits; else a module is a group."""
APART: Final = frozenset({"tests/chaos/test_cluster.py"})
"""Modules whose tests share nothing and take a minute each: each test is a group."""
LONGEST: Final = (
    "java",
    "spark",
    "SDKs",
    "java with clusters of its own",
    "tests/chaos/test_cluster.py",
    "tests/chaos/test_originals.py",
    "tests/client/administration/test_moving_from_rocketmq.py",
    "tests/broker/replication/failover/test_pop_failover.py",
    "tests/cli/test_tutorial.py",
    "tests/cli/up/test_up_replicas.py",
    "tests/cli/up/test_up.py",
    "tests/client/metaq/test_originals.py",
    "tests/contracts/test_zookeeper_access.py",
    "tests/badinput/test_input_budget.py",
    "tests/k8s_operator/brokers/test_contents.py",
    "tests/badinput/test_slow_peers.py",
    "java with users",
    "java with TLS",
    "tests/cli/up/test_up_signals.py",
    "tests/chaos/test_kill.py",
    "tests/cli/up/test_up_moves.py",
    "tests/broker/replication/failover/test_timer_failover.py",
    "tests/broker/app/test_timers_killed.py",
)
"""Groups that take minutes, and modules that take twenty seconds or more, the longest first."""
WAITING: Final = frozenset({"interop", "spark", "processes", "zookeeper", "apiserver"})
"""Markers of tests that start processes."""
COMPUTING: Final = "simulation"
"""Marker of tests that compute for seconds."""


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # without types
    """Hands out whole groups, from both ends of the order of the collected tests."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        if computes(list(self.assigned_work).index(node), len(self.assigned_work)):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def computes(worker: int, workers: int) -> bool:
    """Whether a worker, by its number, begins with what computes: every third."""
    return worker >= workers - workers // 3


def group_of(nodeid: str) -> str:
    """Return the name of the group that a test belongs to."""
    module = nodeid.partition("::")[0]
    if module in APART:
        return nodeid
    return next((group for top, group in SHARED.items() if module.startswith(top)), module)


def arranged(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests by groups: what waits, then what computes, the longest at both ends."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(group_of(item.nodeid), []).append(item)
    longest = sorted((each for each in groups if _module(each) in LONGEST), key=_length)
    marks = {group: _marks(groups[group]) for group in groups if group not in longest}
    waiting = [group for group in marks if marks[group] & WAITING]
    others = [group for group in marks if not marks[group] & WAITING]
    others.sort(key=lambda group: COMPUTING in marks[group])
    return [item for group in (*longest, *waiting, *others) for item in groups[group]]


def _module(group: str) -> str:
    return group.partition("::")[0]


def _length(group: str) -> int:
    return LONGEST.index(_module(group))


def _marks(items: Iterable[pytest.Item]) -> set[str]:
    return {mark.name for item in items for mark in item.iter_markers()}
