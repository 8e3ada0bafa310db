"""How tests are shared among workers: what shares processes shares a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from imago_testing.sharing import LONGEST, SHARED, arranged

ROOT = Path(__file__).parents[1]


class Item(pytest.Item):
    """A test of some module with some markers."""

    def runtest(self) -> None:
        raise AssertionError("never run")


def item(session: pytest.Session, nodeid: str, *marks: str) -> pytest.Item:
    made: pytest.Item = Item.from_parent(session, name=nodeid.rpartition("::")[2], nodeid=nodeid)
    for mark in marks:
        made.add_marker(mark)
    return made


def groups(items: list[pytest.Item]) -> dict[str, str]:
    return {
        each.nodeid: mark.args[0]
        for each in items
        if (mark := each.get_closest_marker("xdist_group")) is not None
    }


def test_tests_that_share_processes_share_a_worker(request: pytest.FixtureRequest) -> None:
    of = request.session
    found = arranged(
        [
            item(of, "tests/wire/test_a.py::test_1"),
            item(of, "tests/cli/test_b.py::test_1", "processes"),
            item(of, "tests/cli/test_b.py::test_2", "processes", "zookeeper"),
            item(of, "tests/cli/test_b.py::test_pure"),
            item(of, "tests/spark/test_c.py::test_1", "spark"),
            item(of, "tests/spark/test_d.py::test_1", "spark"),
            item(of, "tests/simulation/test_e.py::test_1[a@b]", "simulation"),
            item(of, "tests/interop/test_f.py::test_1[5]", "interop"),
        ]
    )
    assert groups(found) == {
        "tests/wire/test_a.py::test_1": "tests/wire/test_a.py pure",
        "tests/cli/test_b.py::test_1": "tests/cli/test_b.py",
        "tests/cli/test_b.py::test_2": "tests/cli/test_b.py",
        "tests/cli/test_b.py::test_pure": "tests/cli/test_b.py pure",
        "tests/spark/test_c.py::test_1": "spark",
        "tests/spark/test_d.py::test_1": "spark",
        "tests/interop/test_f.py::test_1[5]": "java",
    }
    assert [each.nodeid.split("/")[1] for each in found] == [
        *("interop", "spark", "spark"),
        *("cli", "cli", "simulation"),
        *("wire", "cli"),
    ]


def test_groups_that_begin_first_exist() -> None:
    """A module that was renamed would begin somewhere in the middle, and end last."""
    assert [
        name for name in LONGEST if name not in SHARED.values() and not (ROOT / name).is_file()
    ] == []
    assert all((ROOT / folder).is_dir() for folder in SHARED)
