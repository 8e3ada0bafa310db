"""Which tests run on one worker, and in which order, when several workers run them.

A test that starts processes mostly waits for them, and shares them with the tests of its module: a
module is one group. The tests of the original Java clients share three JVMs and a cluster, those of
Spark a session: each of these folders is one group. A group runs on one worker from its first test
to its last. Groups that take longest begin first, so that no worker is left with one of them at the
end; the pure tests fill the time in which they wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

WAITING: Final = frozenset({"interop", "spark", "processes", "zookeeper", "apiserver"})
"""Markers of tests that start processes."""
SHARED: Final = {"tests/interop/": "java", "tests/spark/": "spark"}
"""Folder → the group of all its tests that start processes; elsewhere it is the module."""
LONGEST: Final = (
    "java",
    "spark",
    "tests/chaos/test_cluster.py",
    "tests/cli/test_up.py",
    "tests/badinput/test_remoting_ports.py",
    "tests/cli/test_up_signals.py",
)
"""Groups that take minutes, the longest first; then the other groups as they are collected."""
MODEL: Final = "simulation"
"""Marker of pure tests that compute for seconds: each goes to whoever is free."""


def arranged(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the items in the order in which workers take them, each with its group."""
    for item in items:
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
    return sorted(items, key=_turn)


def group_of(item: pytest.Item) -> str:
    """Return the name of the group that an item belongs to; none when it is on its own."""
    marks = {mark.name for mark in item.iter_markers()}
    module = item.nodeid.partition("::")[0]
    if marks & WAITING:
        return next((group for top, group in SHARED.items() if module.startswith(top)), module)
    return "" if MODEL in marks else f"{module} pure"


def _turn(item: pytest.Item) -> int:
    group = group_of(item)
    marks = {mark.name for mark in item.iter_markers()}
    if group in LONGEST:
        return LONGEST.index(group)
    return len(LONGEST) if marks & {*WAITING, MODEL} else len(LONGEST) + 1
