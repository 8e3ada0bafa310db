"""How tests are shared among workers: what shares processes shares a worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from imago_testing.process_state import left_behind, process_state
from imago_testing.sharing import APART, LONGEST, SHARED, Sharing, arranged, group_of

ROOT = Path(__file__).parents[1]
RAN = """
import os
from pathlib import Path
import pytest
@pytest.mark.parametrize("number", range(12))
def test_one(number):
    here = Path(__file__)
    with here.with_name("ran").open("a") as ran:
        ran.write(f"{here.stem[-1]} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""


class Item(pytest.Item):
    """A test of some module with some markers."""

    def runtest(self) -> None:
        raise AssertionError("never run")


class Worker:
    """A worker as the scheduler sees it."""

    shutting_down = False

    def __init__(self) -> None:
        self.gateway = self
        self.id = str(id(self))
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def item(session: pytest.Session, nodeid: str, *marks: str) -> pytest.Item:
    made: pytest.Item = Item.from_parent(session, name=nodeid.rpartition("::")[2], nodeid=nodeid)
    for mark in marks:
        made.add_marker(mark)
    return made


def test_what_shares_processes_is_one_group() -> None:
    assert group_of("tests/cli/test_b.py::test_1[a::b]") == "tests/cli/test_b.py"
    assert group_of("tests/spark/test_c.py::test_1") == group_of("tests/spark/test_d.py::test_1")
    assert group_of("tests/interop/test_f.py::test_1[5]") == "java"


def test_what_shares_nothing_of_the_java_clients_is_no_part_of_their_group() -> None:
    own = group_of("tests/interop/cross/test_cross_restart.py::test_1")
    assert own == group_of("tests/interop/cross/test_cross_drain.py::test_1") != "java"
    assert group_of("tests/interop/cross/test_cross_metaq.py::test_1") == "java"
    some, others = (f"tests/chaos/test_cluster.py::test_1[{each}]" for each in ("some", "others"))
    assert group_of(some) != group_of(others)


def test_what_waits_comes_before_what_computes_with_the_longest_at_both_ends(
    request: pytest.FixtureRequest,
) -> None:
    of = request.session
    found = arranged([
        item(of, "tests/chaos/test_cluster.py::test_1[a]", "processes"),
        item(of, "tests/simulation/test_c.py::test_1", "simulation"),
        item(of, "tests/wire/test_a.py::test_1"),
        item(of, "tests/wire/test_z.py::test_1"),
        item(of, "tests/client/test_b.py::test_pure"),
        item(of, "tests/client/test_b.py::test_1", "processes"),
        item(of, "tests/client/test_d.py::test_1", "zookeeper"),
        item(of, "tests/cli/up/test_up.py::test_1", "processes"),
        item(of, "tests/chaos/test_cluster.py::test_1[b]", "processes"),
        item(of, "tests/interop/test_f.py::test_1[5]", "interop"),
    ])  # fmt: skip
    assert [each.nodeid for each in found] == [
        "tests/interop/test_f.py::test_1[5]",
        "tests/chaos/test_cluster.py::test_1[a]",
        "tests/chaos/test_cluster.py::test_1[b]",
        "tests/cli/up/test_up.py::test_1",
        "tests/client/test_b.py::test_pure",
        "tests/client/test_b.py::test_1",
        "tests/client/test_d.py::test_1",
        "tests/wire/test_a.py::test_1",
        "tests/wire/test_z.py::test_1",
        "tests/simulation/test_c.py::test_1",
    ]


def test_every_third_worker_begins_at_the_end(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytestconfig.option, "tx", ["3*popen"])
    made = Sharing(pytestconfig)
    nodes = [Worker() for _ in range(3)]
    for node in nodes:
        made.add_node(node)
    modules = ["tests/a.py", "tests/b.py", "tests/c.py", "tests/d.py", "tests/e.py"]
    tests = [f"{module}::test_{number}" for module in modules for number in range(3)]
    for node in nodes:
        made.add_node_collection(node, tests)
    made.schedule()
    assert [list(each) for each in made.assigned_work.values()] == [
        ["tests/a.py"], ["tests/b.py"], ["tests/e.py"],
    ]  # fmt: skip
    made.mark_test_complete(nodes[2], tests.index("tests/e.py::test_0"))
    assert list(made.assigned_work[nodes[2]]) == ["tests/e.py", "tests/d.py"]
    made.mark_test_complete(nodes[0], 0)
    assert list(made.assigned_work[nodes[0]]) == ["tests/a.py", "tests/c.py"]


def test_groups_that_begin_first_exist() -> None:
    """A module that was renamed would begin somewhere in the middle, and end last."""
    modules = [name for name in LONGEST if name not in SHARED.values()]
    assert [name for name in modules if not (ROOT / name).is_file()] == []
    assert all((ROOT / place).exists() for place in (*SHARED, *APART))


def test_a_group_runs_on_one_worker_whatever_others_do(tmp_path: Path) -> None:
    """With the real programs: their markers for groups were once ignored without a word."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(RAN)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup"]
    command += ["--no-loadscope-reorder", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    command += ["-c", str(ROOT / "pyproject.toml"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted(module for module, _ in ran) == sorted([*"abcd"] * 12)
    workers = {name: {worker for module, worker in ran if module == name} for name in "abcd"}
    assert [len(each) for each in workers.values()] == [1, 1, 1, 1]
    assert len(set.union(*workers.values())) > 1


def test_what_a_module_leaves_behind_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = process_state()
    assert left_behind(before, process_state()) == []
    monkeypatch.setenv("IMAGO_LEFT", "1")
    monkeypatch.setenv("OTHERS", "1")
    monkeypatch.chdir(tmp_path)
    mask = os.umask(0o070)
    try:
        assert left_behind(before, process_state()) == [
            "IMAGO_LEFT: absent -> 1",
            f"umask: {mask:03o} -> 070",
            f"working directory: {before['working directory']} -> {tmp_path}",
        ]
    finally:
        os.umask(mask)
