"""Which tests share a worker, and in which order they begin, when several workers run them.

Tests of one module share processes and what else is made once for a module, so a module runs on one
worker from its first test to its last. The tests of the original Java clients share three JVMs and
a cluster, those of Spark a session: each of these folders is a group of its own. What takes longest
begins first, so that no worker is left with it at the end; the pure tests, which only compute, come
last and fill the time in which the others wait.

`pytest -n 4 --dist loadgroup` goes by it. Groups come from the tests' names and not from markers of
pytest-xdist: it writes those into a field that pytest 9.2 no longer reads, and then shares nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

SHARED: Final = {"tests/interop/": "java", "tests/spark/": "spark"}
"""Folder → the group of all its tests; elsewhere a module is a group."""
LONGEST: Final = (
    "java",
    "spark",
    "tests/chaos/test_cluster.py",
    "tests/cli/test_up.py",
    "tests/client/test_originals.py",
    "tests/cli/test_up_signals.py",
)
"""Groups that take minutes, the longest first."""
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
    return next((group for top, group in SHARED.items() if module.startswith(top)), module)


def arranged(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in the order in which their groups begin."""
    tests = list(items)
    turns: dict[str, int] = {}
    for item in tests:
        group = group_of(item.nodeid)
        turns[group] = min(_turn(group, item), turns.get(group, len(LONGEST) + 2))
    return sorted(tests, key=lambda item: turns[group_of(item.nodeid)])


def _turn(group: str, item: pytest.Item) -> int:
    if group in LONGEST:
        return LONGEST.index(group)
    marks = {mark.name for mark in item.iter_markers()}
    return len(LONGEST) + (0 if marks & WAITING else 1 if COMPUTING in marks else 2)
