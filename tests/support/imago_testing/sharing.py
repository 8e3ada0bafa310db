"""Which tests share a worker, and in which order they begin, when several workers run them.

Tests of one module share processes and what else is made once for a module, so a module runs on one
worker from its first test to its last. The tests of the original Java clients share three JVMs and
a cluster, those that make clusters of their own share three others, those of Spark a session: each
is a group. What takes longest begins first, so that no worker is left with it at the end. Then
groups that mostly wait for processes begin by turns with the pure tests, which only compute and
fill the time in which the others wait.

`pytest -n 4 --dist loadgroup` goes by it. Groups come from the tests' names and not from markers of
pytest-xdist: it writes those into a field that pytest 9.2 no longer reads, and then shares nothing.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

SHARED: Final = {
    **dict.fromkeys(
        (
            "tests/interop/test_cross_drain.py",
            "tests/interop/test_cross_handover.py",
            "tests/interop/test_cross_metaq_files.py",
            "tests/interop/test_cross_metaq_slaves.py",
            "tests/interop/test_cross_metaq_xa.py",
            "tests/interop/test_cross_restart.py",
            "tests/interop/test_cross_secured_zookeeper.py",
        ),
        "java with clusters of its own",
    ),
    "tests/interop/test_rocketmq_access.py": "java with users",
    "tests/interop/test_rocketmq_tls.py": "java with TLS",
    "tests/interop/": "java",
    "tests/spark/": "spark",
}
"""Folder or module → the group of all its tests, the first that fits; else a module is a group."""
APART: Final = frozenset({"tests/chaos/test_cluster.py"})
"""Modules whose tests share nothing and take a minute each: each test is a group."""
LONGEST: Final = (
    "java",
    "java with clusters of its own",
    "spark",
    "tests/chaos/test_cluster.py",
    "tests/cli/test_up.py",
    "tests/client/test_originals.py",
    "tests/cli/test_up_signals.py",
    "tests/chaos/test_originals.py",
    "tests/cli/test_tutorial.py",
    "java with users",
    "java with TLS",
)
"""Groups that take minutes, and modules whose tests do, the longest first."""
WAITING: Final = frozenset({"interop", "spark", "processes", "zookeeper", "apiserver"})
"""Markers of tests that start processes."""
COMPUTING: Final = "simulation"
"""Marker of tests that compute for seconds."""


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # without types
    """Hands out whole groups, in the order of the collected tests."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Return the name of the group that a test belongs to."""
    module = nodeid.partition("::")[0]
    if module in APART:
        return nodeid
    return next((group for top, group in SHARED.items() if module.startswith(top)), module)


def arranged(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in the order in which their groups begin."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(group_of(item.nodeid), []).append(item)
    longest = sorted((each for each in groups if _module(each) in LONGEST), key=_length)
    marks = {group: _marks(groups[group]) for group in groups if group not in longest}
    waiting = [group for group in marks if marks[group] & WAITING]
    others = [group for group in marks if not marks[group] & WAITING]
    computing = sorted(others, key=lambda group: COMPUTING not in marks[group])
    by_turns = [group for pair in zip_longest(waiting, computing) for group in pair if group]
    return [item for group in (*longest, *by_turns) for item in groups[group]]


def _module(group: str) -> str:
    return group.partition("::")[0]


def _length(group: str) -> int:
    return LONGEST.index(_module(group))


def _marks(items: Iterable[pytest.Item]) -> set[str]:
    return {mark.name for item in items for mark in item.iter_markers()}
